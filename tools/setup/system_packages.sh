#!/usr/bin/env bash
# Installs those of the named Debian or Ubuntu packages that are missing:
#
#   tools/setup/system_packages.sh ninja-build libgtest-dev
#
# A package is not missing if its programs or headers work, wherever they came from. Packages are installed with
# apt-get, as root or through a sudo that asks for no password. Where neither is possible, one line says what to
# install.
set -euo pipefail

python=${PYTHON:-python3}

has_header() { printf '#include <%s>\n' "$1" | "${CXX:-c++}" -E -x c++ - >/dev/null 2>&1; }

links_fuzzers() {
  printf 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }\n' |
    clang++ -fsanitize=fuzzer,address -x c++ - -o /dev/null >/dev/null 2>&1
}

has_python_header() {
  "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' >/dev/null 2>&1
}

is_there() {
  case $1 in
    clang) command -v clang++ >/dev/null ;;
    g++) command -v "${CXX:-c++}" >/dev/null ;;
    libbenchmark-dev) has_header benchmark/benchmark.h ;;
    libclang-rt-dev) links_fuzzers ;;
    libgmock-dev) has_header gmock/gmock.h ;;
    libgtest-dev) has_header gtest/gtest.h ;;
    ninja-build) command -v ninja >/dev/null ;;
    nlohmann-json3-dev) has_header nlohmann/json.hpp ;;
    python3-dev) has_python_header ;;
    python3-venv) "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

missing() {
  local package
  for package; do is_there "$package" || printf '%s ' "$package"; done
}

fail() {
  printf 'system_packages: %s\n' "$1" >&2
  exit 1
}

read -ra wanted <<<"$(missing "$@")"
[ ${#wanted[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
  fail "please install what Debian calls ${wanted[*]} with this system's package manager"
elif [ "$(id -u)" -eq 0 ]; then
  as_root=(env)
elif sudo -n true 2>/dev/null; then
  as_root=(sudo -n env)
else
  fail "please install ${wanted[*]}: sudo apt-get install ${wanted[*]}"
fi

echo "system_packages: installing ${wanted[*]}"
apt_get=("${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${apt_get[@]}" update && "${apt_get[@]}" install -y --no-install-recommends "${wanted[@]}"; } >"$log" 2>&1; then
  grep -E '^E:' "$log" >&2 || tail -n 3 "$log" >&2
  fail "apt-get could not install ${wanted[*]}"
fi

read -ra wanted <<<"$(missing "$@")"
[ ${#wanted[@]} -eq 0 ] || fail "${wanted[*]} installed, but $python or the compiler in use does not find it"
