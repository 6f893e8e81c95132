#!/usr/bin/env bash
# Fetches the headers of torch 2.10 into build/torch-headers/, for the operators of raggrad.torch. Torch itself is not
# installed. The wheel for aarch64 is the smallest, 146 MB; headers are the same for every machine type.
#
#   tools/setup/torch_headers.sh PYTHON
set -euo pipefail
cd "$(dirname "$0")/../.."

exec tools/setup/headers_of_wheel.sh "$1" build/torch-headers torch==2.10.0 manylinux_2_28_aarch64 \
  torch/include/torch/csrc/stable/ torch/include/torch/headeronly/ torch/include/torch/csrc/inductor/aoti_torch/
