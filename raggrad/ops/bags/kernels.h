// The interface of the backends. Internal to the family.
#pragma once

#include "raggrad/ops/bags/bags.h"

namespace raggrad::bags {

// On entry `bags` has the ids and weights of the operands and the number of bags. Offsets, ids and weights have the
// right types and shapes. On the CPU the offsets' elements have been checked, too.
namespace on_cpu {
Status Cut(const BagOperands& operands, const Context& ctx, Bags& bags) noexcept;
Result<Tensor> Spread(const TensorView& positions, const TensorView& values, int64_t n, const Context& ctx) noexcept;
Result<Scratch<int32_t>> Places(int64_t count, const Context& ctx) noexcept;
}  // namespace on_cpu

namespace on_cuda {
Status Cut(const BagOperands& operands, const Context& ctx, Bags& bags) noexcept;
Result<Tensor> Spread(const TensorView& positions, const TensorView& values, int64_t n, const Context& ctx) noexcept;
Result<Scratch<int32_t>> Places(int64_t count, const Context& ctx) noexcept;

// The kernels of this family in libraggrad_cuda.so.
struct Kernels {
  static constexpr char kSymbol[] = "raggrad_cuda_bags";

  decltype(&Cut) cut;
  decltype(&Spread) spread;
  decltype(&Places) places;
};
}  // namespace on_cuda

}  // namespace raggrad::bags
