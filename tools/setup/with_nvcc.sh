#!/usr/bin/env bash
# Runs a command for which CMake finds nvcc: the one that CUDACXX names, or the one on the PATH, or else one from PyPI,
# which it installs into build/venv-cuda:
#
#   tools/setup/with_nvcc.sh COMMAND...
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v "${CUDACXX:-nvcc}" >/dev/null; then
  make build/venv-cuda/.packages
  cuda=$(echo "$PWD"/build/venv-cuda/lib/python3.*/site-packages/nvidia/cu13)
  export CUDACXX="$cuda/bin/nvcc" CUDAFLAGS="-I$cuda/include/cccl -L$cuda/lib ${CUDAFLAGS:-}"
fi
exec "$@"
