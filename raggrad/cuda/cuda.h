// Device memory, for programs that have no CUDA runtime of their own. Operators take device memory wherever it comes
// from: a TensorView whose device is kCuda and whose pointer is valid on the current CUDA device.
//
//   Context ctx;
//   ctx.stream = my_stream;                                            // a cudaStream_t; null: the default stream
//   Result<Tensor> grad = CopyTensor(host_grad, Device::kCuda, ctx);
//
// Work is queued on Context::stream. Memory, of outputs too, comes from Context::allocator, which then has to give
// device memory; if it is left at the default, from a stream-ordered pool of the library's own, one for each device. A
// tensor from that pool goes back to it in the order of the stream it was made on, by whichever thread it is dropped;
// that stream must live as long as the tensor.
#pragma once

#include "raggrad/core/context.h"

#pragma GCC visibility push(default)
namespace raggrad {

// OK if calls with device memory can be made: the CUDA library is there, and a GPU. The message says what is missing.
Status CudaStatus() noexcept;

// What Context::allocator stands for when operands are in device memory and it was left at the default. Never
// destroyed.
Result<Allocator*> CudaPool(void* stream) noexcept;

// A copy in the other memory, or in the same; waits until it is there. Not for strings, nor while the stream is being
// captured in a CUDA graph.
Result<Tensor> CopyTensor(const TensorView& from, Device to, const Context& ctx = {}) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
