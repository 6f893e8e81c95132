// Device memory, for programs that have no CUDA runtime of their own. Operators take device memory of any origin: a
// TensorView whose device is a GPU. The operands' GPU is made the current one for the time of the call.
//
//   Context ctx;
//   ctx.stream = my_stream;                                            // a cudaStream_t; null: the default stream
//   Result<Tensor> grad = CopyTensor(host_grad, Device::Cuda(0), ctx);
//
// Work is queued on Context::stream. Scratch and outputs in device memory come from Context::device_allocator. The
// default is a stream-ordered pool of the library's own, one for each device. Any thread may drop a tensor from that
// pool; its memory is freed in the order of the stream it was made on, which must live as long as the tensor. Small
// outputs that the host needs (shapes, splits of ragged tensors) come from Context::allocator, in host memory.
#pragma once

#include "raggrad/core/context.h"

#pragma GCC visibility push(default)
namespace raggrad {

// OK if there are a GPU and the CUDA library, so that calls may have device memory. Otherwise says what is missing.
Status CudaStatus() noexcept;

// The pool that serves contexts without a device_allocator. Never destroyed.
Result<Allocator*> CudaPool(Device device, void* stream) noexcept;

// Copies a tensor into memory of device `to`, and waits for the copy. The stream is one of `to`, or of the tensor's GPU
// if `to` is the host. Not for strings, nor while the stream is being captured in a CUDA graph.
Result<Tensor> CopyTensor(const TensorView& from, Device to, const Context& ctx = {}) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
