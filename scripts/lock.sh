#!/bin/sh
# Writes requirements.lock anew: every package that the environment has, by version and hash, and no address.
# It needs uv. Versions that are locked stay; `scripts/lock.sh --upgrade` takes the newest that pyproject.toml allows.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/src/deltamerge"
cp pyproject.toml README.md "$work/"
: >"$work/src/deltamerge/__init__.py"
case " $* " in
*" --upgrade "*) ;;
*)
    {
        printf '[tool.uv]\nconstraint-dependencies = [\n'
        sed -n 's/^\([A-Za-z0-9].*\) \\$/  "\1",/p' requirements.lock | sed 's/\[[a-z]*\]==/==/'
        echo ']'
    } >>"$work/pyproject.toml"
    ;;
esac
cd "$work"
uv lock --quiet "$@"
# pip, asked for hashes, takes a package with an extra only where the extra is locked with it.
uv export --quiet --frozen --all-groups --no-emit-project --no-annotate --no-header |
    sed 's/^coverage==/coverage[toml]==/' >"$OLDPWD/requirements.lock"
