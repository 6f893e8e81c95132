#!/usr/bin/env bash
# Fetches the headers of TensorFlow 2.20's C interface into build/tf-headers/, for the kernels of raggrad.tf. TensorFlow
# itself is not installed. The wheel for macOS is the smallest, 200 MB; headers are the same for every machine type.
#
#   tools/setup/tf_headers.sh PYTHON
set -euo pipefail
cd "$(dirname "$0")/../.."

include=tensorflow/include
exec tools/setup/headers_of_wheel.sh "$1" build/tf-headers tensorflow==2.20.0 macosx_12_0_arm64 \
  $include/tensorflow/c/ $include/tensorflow/core/platform/ctstring $include/tsl/platform/ctstring \
  $include/tensorflow/core/common_runtime/next_pluggable_device/c/ $include/tsl/platform/platform.h $include/xla/tsl/c/
