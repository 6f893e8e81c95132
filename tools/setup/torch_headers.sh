#!/usr/bin/env bash
# Fetches the headers of torch 2.10 into build/torch-headers/, for the operators of raggrad.torch. Torch itself is not
# installed. The wheel for aarch64 is the smallest, 146 MB; headers are the same for every machine type.
#
#   tools/setup/torch_headers.sh PYTHON
set -euo pipefail
cd "$(dirname "$0")/../.."

python=$1
folder=build/torch-headers
[ ! -f "$folder/.complete" ] || exit 0
rm -rf "$folder"
mkdir -p "$folder"
"$python" -m pip download --disable-pip-version-check --quiet --no-deps --only-binary=:all: \
  --platform manylinux_2_28_aarch64 --python-version 3.12 --dest "$folder" torch==2.10.0
"$python" - "$folder" <<'PYTHON'
import sys
import zipfile
from pathlib import Path

folder = Path(sys.argv[1])
wheel = next(folder.glob("torch-*.whl"))
wanted = ("torch/include/torch/csrc/stable/", "torch/include/torch/headeronly/",
          "torch/include/torch/csrc/inductor/aoti_torch/")
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        if name.startswith(wanted) and name.endswith(".h"):
            target = folder / Path(name).relative_to("torch")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))
wheel.unlink()
PYTHON
touch "$folder/.complete"
