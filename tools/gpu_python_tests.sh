#!/usr/bin/env bash
# Runs the Python tests that need a GPU, with the frameworks that PYTHON has, and the golden cases with device arrays:
#
#   tools/gpu_python_tests.sh PYTHON FOLDER
#
# FOLDER has the wheels to test with: raggrad's (make wheel), and those that PYTHON lacks (nanobind-backend, ml_dtypes,
# pytest and what it needs). Needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$1 wheels=$2 target=build/gpu/python
rm -rf "$target"
"$python" -m pip install --disable-pip-version-check --quiet --no-index --no-deps --target "$target" "$wheels"/*.whl
export PYTHONPATH=$PWD/$target
report=$("$python" -m raggrad doctor)
echo "$report"
"$python" -m pytest -rs python/tests/gpu
for framework in torch cupy jax; do
  if grep -q "^$framework GPU 0: *works" <<<"$report"; then
    "$python" -m raggrad conformance --device cuda --framework "$framework" goldens \
      ${RAGGRAD_SHARED_GOLDENS:+"$RAGGRAD_SHARED_GOLDENS"}
  else
    echo "$framework has no GPU here: its golden cases are not run"
  fi
done
