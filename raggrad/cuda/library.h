// What libraggrad_cuda.so has beside the operators: its version, its start, device memory. Internal to the library.
#pragma once

#include <string_view>

#include "raggrad/core/context.h"
#include "raggrad/core/result.h"
#include "raggrad/core/status.h"

namespace raggrad::cuda {

struct Library {
  static constexpr char kSymbol[] = "raggrad_cuda_library";

  std::string_view version;
  // Whether there is a GPU that the kernels run on. `heap` is the caller's DefaultAllocator(): a context that has it
  // has no device memory to give.
  Status (*start)(const Allocator& heap) noexcept;
  Result<Allocator*> (*pool)(void* stream) noexcept;
  Result<Tensor> (*copy)(const TensorView& from, Device to, const Context& ctx) noexcept;
};

}  // namespace raggrad::cuda
