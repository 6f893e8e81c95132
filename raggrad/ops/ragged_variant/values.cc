#include "raggrad/ops/ragged_variant/values.h"

#include "raggrad/cuda/batched_copy.h"
#include "raggrad/cuda/loader.h"

namespace raggrad::ragged_variant::on_cpu {

Result<Tensor> Join(std::string_view op, Device device, const cpu::Joined& joined, const Context& ctx) noexcept {
  if (device.is_cpu()) return cpu::Join(joined, ctx);
  return cuda::WithKernels<cuda::BatchedCopy>(op, device, [&](const cuda::BatchedCopy& kernels) {
    return cuda::JoinListed(kernels, joined.pieces, joined.output, joined.dtype, joined.shape, ctx);
  });
}

Result<Tensor> Copy(std::string_view op, std::string_view argument, int output, const TensorView& view,
                    const Context& ctx) noexcept {
  const Piece whole = {view.data, 0};
  return Join(op, view.device, {argument, output, {&whole, 1}, view.dtype, view.shape}, ctx);
}

}  // namespace raggrad::ragged_variant::on_cpu
