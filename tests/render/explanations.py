"""Plans and explanations to render."""

from __future__ import annotations

from dataclasses import replace

from deltamerge.merge.outcome import ClauseForecast, MergeExplanation, MergeForecast
from deltamerge.merge.plan import Alternative, Decision, MergePlan

from .outcomes import STATEMENT, UPSERT

UPSERT_PLAN = MergePlan(
    match=Decision(
        "join",
        "only rows that change are computed; the others are neither joined a second time nor shuffled",
        (
            Alternative("match", "key_lookup", "an UPDATE computes a value from the target's row"),
            Alternative("match", "anti_join", "there are clauses that update or delete"),
        ),
        {"files": 1, "bytes": 562_133, "files_skipped": 9, "files_touched": 1, "milliseconds": 1_292},
    ),
    source=Decision(
        "checkpoint",
        "the source is read more than once, so Spark keeps its rows",
        (),
        {"rows": 33_512, "milliseconds": 1_413},
    ),
    changed_rows=Decision(
        "spark",
        "Spark evaluates the clauses",
        (),
        {
            "rows_inserted": 27_035,
            "rows_updated": 2_704,
            "rows_deleted": 1,
            "files": 2,
            "bytes": 1_123_000,
            "milliseconds": 3_105,
        },
    ),
    unchanged_rows=Decision(
        "patch",
        "PyArrow copies touched files without the rows that change; their other rows are not decoded into Spark's",
        (
            Alternative(
                "unchanged_rows",
                "deletion_vector",
                "the table does not write deletion vectors (delta.enableDeletionVectors)",
            ),
        ),
        {"rows_copied": 26_181, "files_removed": 1, "deletion_vectors": 0, "milliseconds": 0},
    ),
)
"""As it was carried out."""

UPSERT_WITH_PLAN = replace(UPSERT, plan=UPSERT_PLAN)


def planned(plan: MergePlan) -> MergePlan:
    """Return a plan as it is before the run."""
    return MergePlan(**{name: replace(decision, done={}) for name, decision in plan.decisions.items()})


PLANNED = MergeExplanation(
    table="/data/flights",
    statement=STATEMENT,
    version=7,
    plan=planned(UPSERT_PLAN),
    files=10,
    bytes=5_512_000,
    files_to_read=4,
    bytes_to_read=2_201_000,
    read_predicate="rows in the ranges of the source's keys or rows with month = 10 and day >= 25",
    features=("Change data feed: each changed row is also written to the feed, each update twice.",),
    conflicts=("Commits that delete or replace one of the 4 files that may be read; the merge then runs again.",),
    warnings=(),
)
FORECAST = MergeForecast(
    source_rows=33_512,
    clauses=tuple(ClauseForecast(clause.text, clause.rows) for clause in UPSERT.clauses),
    files_touched=1,
    bytes_touched=562_133,
    bytes_to_write=1_123_000,
    null_keys=3,
    repeated_keys=1,
)
ANALYZED = replace(PLANNED, forecast=FORECAST)
WARNED = replace(
    PLANNED,
    warnings=(
        (
            "The key column flight has no statistics, so the source's keys rule out no file. Add it to "
            "delta.dataSkippingStatsColumns, or put it among the first 32 columns."
        ),
        "ON casts t.time_hour, so no file is left out by it. Compare the column itself.",
    ),
    files_to_read=10,
    bytes_to_read=5_512_000,
    features=(),
    conflicts=(),
    read_predicate="any row",
)
FAILURE = """\
Several source rows match one target row, and a clause would change it for more than one of them.
  flight = 1545, carrier = UA: 2 source rows
  flight = 1714, carrier = UA: 3 source rows"""
FAILS = replace(
    ANALYZED,
    forecast=MergeForecast(
        source_rows=5, clauses=(), files_touched=0, bytes_touched=0, bytes_to_write=0, failure=FAILURE
    ),
)
INSERT_PLAN = MergePlan(
    match=Decision("anti_join", "there are only NOT MATCHED clauses, so it is enough to know what is new"),
    source=Decision("read_once", "spark.databricks.delta.merge.materializeSource is none"),
    changed_rows=Decision("spark", "Spark evaluates the clauses"),
    unchanged_rows=Decision("none", "no clause updates or deletes, so no file is touched"),
)
NOTHING = replace(
    PLANNED,
    statement="MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    plan=INSERT_PLAN,
    files=0,
    bytes=0,
    files_to_read=0,
    bytes_to_read=0,
    features=(),
    forecast=MergeForecast(
        source_rows=0,
        clauses=(ClauseForecast("WHEN NOT MATCHED THEN INSERT *", 0),),
        files_touched=0,
        bytes_touched=0,
        bytes_to_write=0,
        null_keys=0,
        repeated_keys=0,
    ),
)
HOSTILE = "<script>alert(1)</script> [red]x[/red] \x1b[2J\x1b]0;title\x07\x9b31m \u202eevil\u2066 &amp;"
ODD_EXPLANATION = replace(
    ANALYZED,
    table=f"s3://bucket/{HOSTILE}/" + "deep/" * 30,
    statement=f"MERGE INTO t USING s ON t.`{HOSTILE}` = s.id\r\nWHEN MATCHED THEN DELETE",
    plan=replace(
        INSERT_PLAN,
        match=Decision(
            "anti_join", f"column {HOSTILE} is odd", (Alternative("match", "key_lookup", f"so is {HOSTILE}"),)
        ),
    ),
    read_predicate=HOSTILE,
    features=(f"Feature {HOSTILE}",),
    conflicts=(f"Conflict {HOSTILE}",),
    warnings=(f"Warning {HOSTILE} " + "word " * 60,),
    forecast=replace(FORECAST, clauses=(ClauseForecast(f"WHEN MATCHED AND t.x = '{HOSTILE}' THEN DELETE", 1),)),
)
ODD_FAILURE = replace(FAILS, forecast=replace(FORECAST, failure=f"The row {HOSTILE} is at fault."))

EXPLANATIONS = {
    "planned": PLANNED,
    "analyzed": ANALYZED,
    "warned": WARNED,
    "fails": FAILS,
    "nothing": NOTHING,
    "odd": ODD_EXPLANATION,
    "odd failure": ODD_FAILURE,
}
