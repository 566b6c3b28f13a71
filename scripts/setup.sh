#!/bin/sh
# Builds .venv from requirements.lock and sees to Java. Does nothing where all is there.
set -eu
cd "$(dirname "$0")/.."

say() { echo "setup: $*" >&2; }
die() {
    say "$*"
    exit 1
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    for python in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python; do
        if is_new_enough "$python"; then
            echo "$python"
            return
        fi
    done
}

make_environment() {
    python=$(find_python)
    [ -n "$python" ] || die "needs Python 3.11 or newer; PYTHON=/path/to/python names one that is not on the PATH"
    say "building .venv with $("$python" --version)"
    rm -rf .venv
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        "$python" -m venv .venv
    elif uv --version >/dev/null 2>&1; then
        uv venv --quiet --seed --python "$python" .venv
    else
        die "this Python has no venv module; on Debian and Ubuntu: apt-get install python3-venv"
    fi
}

install_packages() {
    say "installing the packages of requirements.lock (PySpark itself is some 400 MB)"
    # uv is only the faster way: where it cannot be had, or cannot reach what pip reaches, pip does the same.
    if ! uv --version >/dev/null 2>&1; then
        with_pip uv 2>/dev/null || true
        PATH="$PWD/.venv/bin:$PATH"
    fi
    { with_uv --require-hashes -r requirements.lock && with_uv --no-deps --editable .; } 2>/dev/null ||
        { with_pip --require-hashes -r requirements.lock && with_pip --no-deps --editable .; } ||
        die "the packages could not be installed; see pip's output above"
}

with_uv() {
    UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-300}" uv pip install --quiet --python .venv/bin/python "$@"
}

with_pip() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"
}

java_version() {
    # Spark takes JAVA_HOME's Java before the one on the PATH.
    java=java
    [ -z "${JAVA_HOME:-}" ] || java="$JAVA_HOME/bin/java"
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1) || version=
    echo "${version:-0}"
}

find_java() {
    [ "$(java_version)" -ge 17 ] && return
    if [ -z "${JAVA_HOME:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing Java"
        apt-get update -qq
        for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
            if DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" \
                >/dev/null 2>&1; then
                break
            fi
        done
        [ "$(java_version)" -ge 17 ] && return
    fi
    if [ -n "${JAVA_HOME:-}" ]; then
        die "Spark needs Java 17 or newer; JAVA_HOME is $JAVA_HOME and has version $(java_version): set it to a newer one"
    fi
    die "Spark needs Java 17 or newer; on Debian and Ubuntu: apt-get install openjdk-17-jre-headless;" \
        "on macOS: brew install openjdk@17"
}

wanted=$(cat requirements.lock pyproject.toml scripts/setup.sh | cksum)
if [ "$(cat .venv/.installed 2>/dev/null)" != "$wanted" ] || ! .venv/bin/python -c '' 2>/dev/null; then
    is_new_enough .venv/bin/python || make_environment
    install_packages
    echo "$wanted" >.venv/.installed
fi
find_java
