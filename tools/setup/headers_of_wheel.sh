#!/usr/bin/env bash
# Fetches a wheel for CPython 3.12, keeps some of its headers and drops the rest:
#
#   tools/setup/headers_of_wheel.sh PYTHON FOLDER REQUIREMENT PLATFORM PREFIX...
#
# Headers whose names begin with one of the prefixes go to FOLDER, without the first part of their names.
set -euo pipefail

python=$1 folder=$2 requirement=$3 platform=$4
[ ! -f "$folder/.complete" ] || exit 0
rm -rf "$folder"
mkdir -p "$folder"
"$python" -m pip download --disable-pip-version-check --quiet --no-deps --only-binary=:all: \
  --platform "$platform" --python-version 3.12 --dest "$folder" "$requirement"
"$python" - "$folder" "${@:5}" <<'PYTHON'
import sys
import zipfile
from pathlib import Path

folder, prefixes = Path(sys.argv[1]), tuple(sys.argv[2:])
wheel = next(folder.glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        if name.startswith(prefixes) and name.endswith(".h"):
            target = folder / Path(*Path(name).parts[1:])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))
wheel.unlink()
PYTHON
touch "$folder/.complete"
