// The interface of libraggrad_cuda.so beside the operators: version, start, device memory. Internal to the library.
#pragma once

#include <string_view>

#include "raggrad/core/context.h"
#include "raggrad/core/result.h"
#include "raggrad/core/status.h"

namespace raggrad::cuda {

struct Library {
  static constexpr char kSymbol[] = "raggrad_cuda_library";

  std::string_view version;
  // Must be called first. Fails if there is no GPU. `heap` is the caller's DefaultAllocator(): contexts that have it
  // get device memory from the pool of their stream instead.
  Status (*start)(const Allocator& heap) noexcept;
  Result<Allocator*> (*pool)(void* stream) noexcept;
  Result<Tensor> (*copy)(const TensorView& from, Device to, const Context& ctx) noexcept;
};

}  // namespace raggrad::cuda
