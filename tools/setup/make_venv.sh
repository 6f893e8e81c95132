#!/usr/bin/env bash
# Makes a virtual environment:
#
#   tools/setup/make_venv.sh DIRECTORY
#
# If the system's CMake is missing or too old for this project, the environment gets one in DIRECTORY/cmake/.
set -euo pipefail

folder=$1
python=${PYTHON:-python3}
oldest_cmake=3.25

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  echo "make_venv: $python is older than 3.10; name a newer one: make PYTHON=python3.12 ..." >&2
  exit 1
fi
PYTHON=$python "$(dirname "$0")/system_packages.sh" python3-venv python3-dev

rm -rf "$folder"
packages=$("$python" -c 'import sys; print("lib/python%d.%d/site-packages" % sys.version_info[:2])')
first=build/venv/$packages
if [ -d "$first/pip" ]; then  # a copy saves the 5 s that an installation of pip takes
  "$python" -m venv --without-pip "$folder"
  cp -a "$first"/pip "$first"/pip-*.dist-info "$folder/$packages/"
else
  "$python" -m venv "$folder"
fi

cmake=$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p') || cmake=0
if [ "$(printf '%s\n' "$oldest_cmake" "$cmake" | sort -V | head -n 1)" != "$oldest_cmake" ]; then
  echo "make_venv: CMake $cmake is older than $oldest_cmake; installing a newer one into $folder"
  "$folder/bin/python" -m pip install --quiet "cmake>=$oldest_cmake"
  mkdir "$folder/cmake"
  ln -s ../bin/cmake ../bin/ctest "$folder/cmake/"
fi
