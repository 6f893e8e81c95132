// Device memory, for programs that have no CUDA runtime of their own. Operators take device memory of any origin: a
// TensorView whose device is kCuda and whose pointer is valid on the current CUDA device.
//
//   Context ctx;
//   ctx.stream = my_stream;                                            // a cudaStream_t; null: the default stream
//   Result<Tensor> grad = CopyTensor(host_grad, Device::kCuda, ctx);
//
// Work is queued on Context::stream. Scratch and outputs come from Context::allocator, which must give device memory.
// The default is a stream-ordered pool of the library's own, one for each device. Any thread may drop a tensor from
// that pool; its memory is freed in the order of the stream it was made on, which must live as long as the tensor.
#pragma once

#include "raggrad/core/context.h"

#pragma GCC visibility push(default)
namespace raggrad {

// OK if there are a GPU and the CUDA library, so that calls may have device memory. Otherwise says what is missing.
Status CudaStatus() noexcept;

// The pool that replaces a default Context::allocator when operands are in device memory. Never destroyed.
Result<Allocator*> CudaPool(void* stream) noexcept;

// Copies a tensor into memory of device `to`, and waits for the copy. Not for strings, nor while the stream is being
// captured in a CUDA graph.
Result<Tensor> CopyTensor(const TensorView& from, Device to, const Context& ctx = {}) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
