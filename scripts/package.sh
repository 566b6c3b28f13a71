#!/bin/sh
# Builds the sdist and, from it, the wheel; checks what an index would show; installs both with each pair of Python and
# PySpark in a new environment, outside of the checkout, and runs scripts/package_merge.py there:
#     scripts/package.sh 3.10:4.0.4 3.13:4.3.0
# Needs uv, which scripts/setup.sh puts into .venv. MODES="classic connect" also runs the merge over Spark Connect.
set -eu
cd "$(dirname "$0")/.."
PATH="$PATH:$PWD/.venv/bin"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

find_python() {
    for python in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        # A shim of pyenv is on the PATH also where its version is not active.
        if "$python" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
            command -v "$python"
            return
        fi
    done
    # uv downloads it where it may.
    echo "$1"
}

# The lock's versions, but of PySpark.
sed -n 's/^\([A-Za-z0-9].*\) \\$/\1/p' requirements.lock | sed 's/\[[a-z]*\]==/==/' | grep -v '^pyspark' >"$work/constraints.txt"
rm -rf dist
uv build --quiet
uv tool run --quiet twine check --strict dist/*.whl dist/*.tar.gz
wheel=$(echo "$PWD"/dist/*.whl)
sdist=$(echo "$PWD"/dist/*.tar.gz)

try() {
    environment=$work/$1-$2
    uv venv --quiet --python "$(find_python "$1")" "$environment"
    uv pip install --quiet --python "$environment/bin/python" --constraints "$work/constraints.txt" \
        "deltamerge[connect,cli] @ file://$wheel" "pyspark[connect]==$2"
    cp scripts/package_merge.py "$environment/"
    for mode in ${MODES:-classic}; do
        (
            cd "$environment"
            unset PYTHONPATH SPARK_HOME PYSPARK_DRIVER_PYTHON
            PYSPARK_PYTHON=$environment/bin/python SPARK_LOCAL_IP=127.0.0.1 \
                bin/python package_merge.py "$environment/$mode" "$mode"
            bin/deltamerge detail "$environment/$mode" --json >/dev/null
        )
    done
    uv pip install --quiet --python "$environment/bin/python" --no-deps --reinstall "$sdist"
    (cd "$environment" && bin/python -c "import deltamerge.tables")
    rm -rf "$environment"
}

failed=
for pair in "$@"; do
    began=$(date +%s)
    # Not in a condition, where the shell would go on after an error.
    (set +e; (set -e; try "${pair%:*}" "${pair#*:}"); echo $? >"$work/rc")
    [ "$(cat "$work/rc")" = 0 ] || failed="$failed $pair"
    echo "Python ${pair%:*}, PySpark ${pair#*:}: $(($(date +%s) - began)) s"
done
if [ -n "$failed" ]; then
    echo "Failed:$failed"
    exit 1
fi
