#!/usr/bin/env bash
# Finds workloads that are slower in the working tree than in a commit:
#
#   tools/perf_check.sh VENV COMMIT [arguments of python -m raggrad bench]
#
# Builds both as packages, into build/perf/, and measures them in turns. VENV has the packages that raggrad needs.
set -euo pipefail

venv=$1
commit=$(git rev-parse --verify --short "$2^{commit}")
shift 2
folder=build/perf
pip=("$venv/bin/python" -m pip install --disable-pip-version-check --quiet --no-deps --upgrade)

install() {  # SOURCE NAME: the package of a source tree, as a folder
  echo "perf_check: building $2"
  "${pip[@]}" --config-settings "build-dir=$PWD/$folder/build-$2" --target "$folder/$2" "$1"
}

if [ ! -e "$folder/$commit/raggrad" ]; then
  rm -rf "$folder/source"
  mkdir -p "$folder/source"
  git archive "$commit" | tar -x -C "$folder/source"
  install "$folder/source" "$commit"
fi
rm -rf "$folder/tree"
install . tree
PYTHONPATH=$folder/tree "$venv/bin/python" -m raggrad bench --baseline "$folder/$commit" "$@"
