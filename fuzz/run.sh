#!/bin/sh
# Builds the fuzz targets and runs each from a copy of its committed corpus, as many at once as there are processors.
# Exits non-zero on a finding.
#
#   fuzz/run.sh [seconds per target, default 60]
#
# BUILD_DIR names the build directory (default build/asan, whose tests are left alone), JOBS how many targets run at
# once. Findings stay in the folder fuzz/found of the build directory.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
build=${BUILD_DIR:-build/asan}
jobs=${JOBS:-$(nproc)}

fail() {
  echo "fuzz/run.sh: $1" >&2
  exit 2
}
case $seconds in
'' | *[!0-9]*) fail "expected a number of seconds per target, got '$seconds'" ;;
esac
for tool in clang++ cmake ninja; do
  command -v $tool >/dev/null || fail "needs $tool (Debian and Ubuntu: apt-get install clang cmake ninja-build)"
done

mkdir -p "$build"
cmake --preset asan -B "$build" >"$build/configure.log" 2>&1 || fail "cmake failed: see $build/configure.log"
cmake --build "$build" --target fuzzers >"$build/build.log" 2>&1 || fail "the build failed: see $build/build.log"

fuzz() {  # FAMILY: one target, and a line about it
  target=$build/fuzz/$1_fuzz
  found=$build/fuzz/found/$1
  rm -rf "$found"
  mkdir -p "$found/corpus" "$found/crashes"
  cp "fuzz/corpus/$1"/* "$found/corpus"
  # The driver counts what the operators allocate, and AddressSanitizer checks for leaks at the end. libFuzzer's own
  # check after each input would take most of the time.
  code=0
  UBSAN_OPTIONS=print_stacktrace=1 "$target" "$found/corpus" -max_total_time="$seconds" -max_len=1000 -len_control=10 \
    -timeout=30 -detect_leaks=0 -print_final_stats=1 -artifact_prefix="$found/crashes/" >"$found/log" 2>&1 || code=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$found/log")
  speed=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$found/log")
  coverage=$(sed -n 's/.*cov: \([0-9]*\).*/\1/p' "$found/log" | tail -n 1)
  rm -f "$found"/crashes/slow-unit-*
  crashes=$(find "$found/crashes" -type f | wc -l)
  echo "$1: ${runs:-?} runs, ${speed:-?} per second, coverage ${coverage:-?}, $crashes crashes"
  if [ "$code" -eq 0 ]; then return; fi
  grep -m 1 -E 'DIFFERENCE|ERROR: |runtime error' "$found/log" || echo "exit status $code: see $found/log"
  for crash in "$found"/crashes/*; do
    if [ -f "$crash" ]; then echo "to see it again: $target $crash"; fi
  done
  return 1
}

status=0
running=
finish() {
  for pid in $running; do wait "$pid" || status=1; done
  running=
}
for corpus in fuzz/corpus/*/; do
  fuzz "$(basename "$corpus")" &
  running="$running $!"
  if [ "$(echo "$running" | wc -w)" -ge "$jobs" ]; then finish; fi
done
finish
exit $status
