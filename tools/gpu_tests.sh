#!/usr/bin/env bash
# Runs the tests of a build that need a GPU and prints how many ran:
#
#   tools/gpu_tests.sh PRESET [--all]      --all: fails if there is no GPU to run them on
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
log=build/$preset/gpu_tests.txt
failed=0
ctest --preset "$preset" -L gpu --verbose >"$log" 2>&1 || failed=$?
count() { grep -cE "$1" "$log" || true; }
ran=$(count '\[       OK \].* ms\)')
skipped=$(count '\[  SKIPPED \].* ms\)')
if [ "$failed" -ne 0 ]; then
  grep -vE '\[ +(RUN|OK|-+|=+) ' "$log" | tail -n 200
  echo "gpu_tests: failed; all output is in $log"
  exit "$failed"
fi
echo "GPU tests: $ran passed, $skipped not run"
if [ "$skipped" -gt 0 ]; then sed -nE 's/^[0-9]+: (.*there are no kernels.*)/\1/p' "$log" | sort -u | head -n 1; fi
if [ "${2:-}" = --all ] && [ "$ran" -le "$skipped" ]; then
  echo 'gpu_tests: there is no GPU to run these tests on'
  exit 1
fi
