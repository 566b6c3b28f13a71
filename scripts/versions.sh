#!/bin/sh
# Runs the quick tests, on classic Spark and over Spark Connect, with other versions of PySpark than the lock's:
#     scripts/versions.sh 4.0.4 4.1.4
# Each version has an environment of its own under .venvs.
set -eu
cd "$(dirname "$0")/.."

install() {
    if command -v uv >/dev/null; then
        uv pip install --quiet --python "$environment/bin/python" "$@"
    else
        "$environment/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
    fi
}

failed=
for version in "$@"; do
    environment=.venvs/pyspark-$version
    if [ ! -e "$environment/.installed" ]; then
        rm -rf "$environment"
        if command -v uv >/dev/null; then
            uv venv --quiet --python .venv/bin/python "$environment"
        else
            .venv/bin/python -m venv "$environment"
        fi
        install --require-hashes -r requirements.lock
        install "pyspark[connect]==$version"
        install --no-deps --editable .
        touch "$environment/.installed"
    fi
    for mode in classic connect; do
        echo "PySpark $version, $mode"
        DELTAMERGE_TEST_JAVA=-XX:TieredStopAtLevel=1 DELTAMERGE_TEST_MODE=$mode "$environment/bin/python" -m pytest -q -n 2 --dist worksteal \
            -m "quick and not slow and not oracle and not connect" || failed="$failed $version-$mode"
    done
done
if [ -n "$failed" ]; then
    echo "Failed:$failed"
    exit 1
fi
