#!/bin/sh
# Writes requirements.lock anew: every package that the environment has, by version and hash, and no address.
# It needs uv. `scripts/lock.sh --upgrade` takes the newest versions that pyproject.toml allows.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/src/deltamerge"
cp pyproject.toml README.md "$work/"
: >"$work/src/deltamerge/__init__.py"
cd "$work"
uv lock --quiet "$@"
uv export --quiet --frozen --all-groups --no-emit-project --no-annotate --no-header >"$OLDPWD/requirements.lock"
