// One tensor from many pieces of device memory, by one kernel however many they are. Internal to the library.
#pragma once

#include <cstdint>
#include <span>

#include "raggrad/core/context.h"
#include "raggrad/core/result.h"
#include "raggrad/core/tensor.h"

namespace raggrad {

// Values of a tensor that come from one place.
struct Piece {
  const void* data;  // null: they are zeros
  int64_t begin;     // where they begin in the tensor, counted in values; they end where those of the next piece begin
};

namespace cuda {

struct BatchedCopy {
  static constexpr char kSymbol[] = "raggrad_cuda_batched_copy";

  // Output `index` of an operator: `pieces`, which ascend from 0, fill a tensor of `shape`. They are described in host
  // memory and may be changed as soon as this returns; the values need not have been copied by then. Not for strings.
  Result<Tensor> (*join)(std::span<const Piece> pieces, int index, DType dtype, const Shape& shape,
                         const Context& ctx) noexcept;
};

}  // namespace cuda
}  // namespace raggrad
