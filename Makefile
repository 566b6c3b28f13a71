# Every target builds its environment in .venv first (scripts/setup.sh); a second time that takes no time.

PYTHON = .venv/bin/python
PYTEST = $(PYTHON) -m pytest
# Two processes share out the tests, each with a Spark of its own.
SHARED = -n 2 --dist worksteal

# Where this is set, each process and each of Spark's Python workers would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

# The JVM's second compiler takes more of two processors than it gives back, even in a run of ten minutes.
SHORT = DELTAMERGE_TEST_JAVA=-XX:TieredStopAtLevel=1

# In a run of half an hour it does, with one thread of its own kind.
LONG = DELTAMERGE_TEST_JAVA="-XX:TieredStopAtLevel=4 -XX:CICompilerCount=2"

# Random merges beside delta-spark: how many, the seed of the first, and whether each is run by every plan that fits.
MERGES = 100
SEED = 1
EACH_PLAN =
# Versions of PySpark that are tried besides the lock's.
VERSIONS = 4.0.4 4.1.4 4.2.1
# Pairs of Python and PySpark that the wheel and the sdist are installed with, and how their merge runs.
PAIRS = 3.10:4.0.4 3.11:4.1.4 3.12:4.2.1 3.13:4.3.0
MODES = classic connect
# Topics of recorded merges and tables to make again; all without a name.
TOPICS =
TABLES =
# Examples for the model of MERGE in plain Python.
EXAMPLES = 5000
# Examples of each random change feed, and how often a stream is killed.
FEEDS = 200
STREAM_KILLS = 20

# Writers at once, merges of each, and how often one of them is killed; damaged files; histories of writers.
WRITERS = 5
RACES = 40
KILLS = 40
MUTATIONS = 10000
HISTORIES = 5000
# Executors that are killed at any time, for each plan, besides one in each job.
EXECUTOR_KILLS = 10
# Merges in one session, of which nothing may be left in memory.
SESSION_MERGES = 1000

.PHONY: help setup demo coverage examples torture oracle record tables matrix corpus model test test-all test-slow test-connect test-oracle test-golden archive versions package recipes docs lint types check bench-small bench-log bench bench-all lock clean

help:
	@echo "make demo          one MERGE on a year of flights, explained"
	@echo "make test          the quick tests; with DELTAMERGE_TEST_RANDOM=1 by other random examples than the last time"
	@echo "make coverage      the quick tests, and the lines of the source that they miss"
	@echo "make examples      every script and notebook of examples/"
	@echo "make test-all      all tests that need only deltamerge, with all combinations of parameters, on classic Spark and Connect"
	@echo "make test-oracle   the tests beside delta-spark (needs Maven)"
	@echo "make test-golden   the tests of tables over more tables of other engines: DELTAMERGE_GOLDEN=folder (needs Maven)"
	@echo "make versions      the quick tests with other versions of PySpark: VERSIONS='4.0.4 4.1.4 4.2.1'"
	@echo "make package       wheel and sdist, installed with some pairs of Python and PySpark: PAIRS='3.11:4.3.0'"
	@echo "make oracle        random merges beside delta-spark: MERGES=1000 SEED=1, by every plan with EACH_PLAN=1 (needs Maven)"
	@echo "make matrix        features of tables, back and forth with delta-spark and delta-rs (needs Maven)"
	@echo "make corpus        each recorded merge by SQL and by the builder, on classic Spark and over Connect"
	@echo "make record        tests/data/cases again, by delta-spark: TOPICS='basic star' (needs Maven)"
	@echo "make tables        tests/data/tables again, by delta-spark and delta-rs: TABLES='plain types' (needs Maven)"
	@echo "make model         random merges beside the model in plain Python: EXAMPLES=5000"
	@echo "make torture       writers that race and are killed, executors and a stream that are killed, many merges in one session, and damaged files: WRITERS=5 RACES=40 KILLS=40 STREAM_KILLS=20 EXECUTOR_KILLS=10 MUTATIONS=10000"
	@echo "make recipes       random change feeds beside a model, and a stream that is killed: FEEDS=200 STREAM_KILLS=20"
	@echo "make docs          the site of the docs, in site/"
	@echo "make check         lint, types and every test"
	@echo "make bench-small   small merges, beside delta-spark (needs Maven)"
	@echo "make bench-log     loading a large table's log"
	@echo "make bench         32 merges of TPC-H's lineitem, beside delta-spark and delta-rs (needs Maven)"
	@echo "make bench-all     all benchmarks (needs Maven)"
	@echo "make lock          new versions into requirements.lock (needs uv)"

setup:
	@sh scripts/setup.sh

demo: setup
	@$(PYTHON) demo/flights.py

test: setup
	$(SHORT) $(PYTEST) -q $(SHARED) -m "quick and not slow and not oracle and not connect"

coverage: setup
	$(SHORT) $(PYTEST) -q $(SHARED) -m "quick and not slow and not oracle and not connect" --cov --cov-report=term

examples: setup
	$(PYTEST) -q tests/test_examples.py

test-all: export DELTAMERGE_TEST_COMBINATIONS = all
test-all: setup
	$(SHORT) $(PYTEST) -q $(SHARED) -m "not connect and not oracle"
	@$(MAKE) test-connect

# Where most tests start sessions of their own, which read Spark's classes from it.
archive: setup
	@$(PYTHON) tests/class_archive.py

test-slow: archive
	$(LONG) $(PYTEST) -q $(SHARED) -m "(not quick or slow) and not connect and not oracle"

test-connect: archive
	$(SHORT) DELTAMERGE_TEST_MODE=connect $(PYTEST) -q $(SHARED) -m "not oracle"

test-oracle: archive
	$(SHORT) $(PYTEST) -q $(SHARED) -m "oracle and not matrix"

test-golden: setup
	@test -f "$(DELTAMERGE_GOLDEN)/manifest.json" || { echo "DELTAMERGE_GOLDEN=folder make test-golden"; exit 1; }
	$(SHORT) DELTAMERGE_GOLDEN="$(DELTAMERGE_GOLDEN)" $(PYTEST) -q $(SHARED) tests/foreign

versions: setup
	@sh scripts/versions.sh $(VERSIONS)

package: setup
	@MODES="$(MODES)" sh scripts/package.sh $(PAIRS)

oracle: setup
	PYTHONPATH=tests $(PYTHON) -m oracle.random_merges --merges $(MERGES) --seed $(SEED) $(if $(EACH_PLAN),--each-plan)

record: setup
	PYTHONPATH=tests $(PYTHON) -m oracle.record $(TOPICS)

tables: setup
	PYTHONPATH=tests $(PYTHON) tests/data/make_tables.py $(TABLES)

matrix: setup
	PYTHONPATH=tests $(PYTHON) -m round_trip

corpus: setup
	DELTAMERGE_TEST_CASES=all $(PYTEST) -q $(SHARED) tests/corpus
	DELTAMERGE_TEST_CASES=all DELTAMERGE_TEST_MODE=connect $(PYTEST) -q $(SHARED) tests/corpus

model: setup
	DELTAMERGE_MODEL_EXAMPLES=$(EXAMPLES) $(PYTEST) -q tests/model -k many

torture: setup
	DELTAMERGE_WRITERS=$(WRITERS) DELTAMERGE_MERGES=$(RACES) DELTAMERGE_KILLS=$(KILLS) \
	DELTAMERGE_MUTATIONS=$(MUTATIONS) DELTAMERGE_HISTORIES=$(HISTORIES) DELTAMERGE_STREAM_KILLS=$(STREAM_KILLS) \
	DELTAMERGE_EXECUTOR_KILLS=$(EXECUTOR_KILLS) DELTAMERGE_SESSION_MERGES=$(SESSION_MERGES) \
	$(PYTEST) -q -s tests/faults tests/txn/test_histories.py tests/merge/test_row_level_concurrency.py \
	tests/recipes/test_streaming.py

recipes: setup
	DELTAMERGE_RECIPE_EXAMPLES=$(FEEDS) DELTAMERGE_STREAM_KILLS=$(STREAM_KILLS) $(PYTEST) -q tests/recipes -k "random or killed"

docs: setup
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

lint: setup
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check

types: setup
	$(PYTHON) -m mypy

check: lint types test-all test-oracle

bench-small: setup
	$(PYTHON) benchmarks/merge_small.py

bench-log: setup
	$(PYTHON) benchmarks/log_load.py

bench: setup
	$(PYTHON) benchmarks/merge_lineitem.py

# All of them, one after another: two hours and 20 GB of disk.
bench-all: bench-small bench bench-log
	$(PYTHON) benchmarks/chart.py .bench/merge_lineitem.json docs/merge_lineitem.svg
	$(PYTHON) benchmarks/merge_lineitem.py --deletion-vectors
	$(PYTHON) benchmarks/merge_shapes.py
	$(PYTHON) benchmarks/merge_locality.py
	$(PYTHON) benchmarks/merge_scale.py

lock:
	sh scripts/lock.sh --upgrade

clean:
	rm -rf .coverage .venv .bench .mypy_cache .pytest_cache .ruff_cache demo-table spark-warehouse
