#include "raggrad/cuda/cuda.h"

#include <cstring>

#include "raggrad/core/operands.h"
#include "raggrad/cuda/host_copy.h"
#include "raggrad/cuda/library.h"
#include "raggrad/cuda/loader.h"

namespace raggrad {

Status CudaStatus() noexcept { return cuda::FindKernels("CudaStatus", cuda::Library::kSymbol).status(); }

Result<Allocator*> CudaPool(Device device, void* stream) noexcept {
  return cuda::WithKernels<cuda::Library>("CudaPool", device,
                                          [&](const cuda::Library& library) { return library.pool(stream); });
}

Result<Tensor> CopyTensor(const TensorView& from, Device to, const Context& ctx) noexcept {
  constexpr std::string_view kOp = "CopyTensor";
  if (Status s = CheckOperands(kOp, {{"from", from}}); !s.ok()) return s;
  if (from.dtype == DType::kString || DTypeSize(from.dtype) == 0) {
    return InvalidArgument(kOp, "only numbers can be copied [from: expected a type of fixed size, got ", from.dtype,
                           "]");
  }
  if (from.device.is_cpu() && to.is_cpu()) {
    Result<Tensor> output = WithOp(kOp, [&] { return AllocateOutput(ctx, 0, from.dtype, from.shape); });
    if (output.ok() && output->bytes() > 0) std::memcpy(output->data(), from.data, output->bytes());
    return output;
  }
  const auto copy = [&](const cuda::Library& library) -> Result<Tensor> {
    // Copies nothing, but refuses a captured stream before memory is taken from it.
    if (Status s = library.copy(nullptr, nullptr, 0, ctx); !s.ok()) return s;
    Allocator* memory = to.is_cpu() ? ctx.allocator : ctx.device_allocator;
    if (memory == nullptr) {
      const Result<Allocator*> pool = library.pool(ctx.stream);
      if (!pool.ok()) return pool.status();
      memory = *pool;
    }
    Result<Tensor> output = AllocateOutput(*memory, to, 0, from.dtype, from.shape);
    if (!output.ok()) return output;
    if (Status s = library.copy(output->data(), from.data, output->bytes(), ctx); !s.ok()) return s;
    return output;
  };
  return cuda::WithKernels<cuda::Library>(kOp, to.is_cpu() ? from.device : to, copy);
}

namespace cuda {

Result<Tensor> CopyToHost(std::string_view op, const TensorView& from, const Context& ctx) noexcept {
  return WithKernels<Library>(op, from.device, [&](const Library& library) -> Result<Tensor> {
    const size_t bytes = static_cast<size_t>(from.shape.NumElements().value_or(0)) * DTypeSize(from.dtype);
    void* const data = bytes == 0 ? nullptr : ctx.allocator->Allocate(bytes);
    if (data == nullptr && bytes > 0) return Status(Code::kResourceExhausted, "no memory to copy an operand");
    Tensor copy(ctx.allocator, data, bytes, from.dtype, from.shape, Device::Cpu());
    if (Status s = library.copy(data, from.data, bytes, ctx); !s.ok()) return s;
    return copy;
  });
}

}  // namespace cuda
}  // namespace raggrad
