// XLA's foreign function interface, under a short name.
#pragma once

#include "xla/ffi/api/ffi.h"

namespace raggrad::jax_door {

namespace ffi = ::xla::ffi;

}  // namespace raggrad::jax_door
