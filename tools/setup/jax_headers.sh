#!/usr/bin/env bash
# Fetches XLA's headers from jaxlib 0.7.2 into build/jax-headers/, for the handlers of raggrad.jax. jaxlib itself is not
# installed. The wheel for aarch64 has 72 MB; headers are the same for every machine type.
#
#   tools/setup/jax_headers.sh PYTHON
set -euo pipefail
cd "$(dirname "$0")/../.."

exec tools/setup/headers_of_wheel.sh "$1" build/jax-headers jaxlib==0.7.2 manylinux_2_27_aarch64 jaxlib/include/xla/ffi/api/
