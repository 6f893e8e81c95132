#include "raggrad/cuda/cuda.h"

#include "raggrad/core/operands.h"
#include "raggrad/cuda/library.h"
#include "raggrad/cuda/loader.h"

namespace raggrad {

Status CudaStatus() noexcept { return cuda::FindKernels("CudaStatus", cuda::Library::kSymbol).status(); }

Result<Allocator*> CudaPool(void* stream) noexcept {
  return cuda::WithKernels<cuda::Library>("CudaPool",
                                          [&](const cuda::Library& library) { return library.pool(stream); });
}

Result<Tensor> CopyTensor(const TensorView& from, Device to, const Context& ctx) noexcept {
  constexpr std::string_view kOp = "CopyTensor";
  if (Status s = CheckOperands(kOp, {{"from", from}}); !s.ok()) return s;
  if (from.dtype == DType::kString || DTypeSize(from.dtype) == 0) {
    return InvalidArgument(kOp, "only numbers can be copied [from: expected a type of fixed size, got ", from.dtype,
                           "]");
  }
  return cuda::WithKernels<cuda::Library>(kOp,
                                          [&](const cuda::Library& library) { return library.copy(from, to, ctx); });
}

}  // namespace raggrad
