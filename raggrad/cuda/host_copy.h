// Copies of operands for the host to read. Internal to the library.
#pragma once

#include <string_view>

#include "raggrad/core/context.h"

namespace raggrad::cuda {

// Copies a tensor of device memory into scratch of the context's host allocator, and waits for the copy. Errors name
// `op`. Not for strings, nor while the stream is being captured in a CUDA graph.
Result<Tensor> CopyToHost(std::string_view op, const TensorView& from, const Context& ctx) noexcept;

}  // namespace raggrad::cuda
