// Checks the operands and chooses the backend by their device.
#include <climits>
#include <utility>

#include "raggrad/core/error_text.h"
#include "raggrad/core/operands.h"
#include "raggrad/cuda/cuda.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/bags/bags.h"
#include "raggrad/ops/bags/kernels.h"

namespace raggrad {
namespace {

constexpr std::string_view kOp = "CutIntoBags";

Status CheckIds(std::string_view argument, const TensorView& ids) {
  if (!Contains(IndexTypes{}, ids.dtype)) {
    return InvalidArgument(kOp, "[", argument, ": expected int32 or int64, got ", ids.dtype, "]");
  }
  if (ids.rank() != 1) {
    return InvalidArgument(kOp, "[", argument, ": expected 1 dimension, got ", ids.rank(), "]");
  }
  return {};
}

template <class Offset>
Status CheckAscending(const Offset* offsets, int64_t count, int64_t num_ids) {
  if (count > 0 && offsets[0] != 0) return InvalidArgument(kOp, "[offsets[0]: expected 0, got ", offsets[0], "]");
  for (int64_t i = 1; i < count; ++i) {
    if (offsets[i] < offsets[i - 1]) {
      return InvalidArgument(kOp, "[offsets[", i, "]: expected at least ", offsets[i - 1], ", the offset before, got ",
                             offsets[i], "]");
    }
  }
  if (count > 0 && offsets[count - 1] > num_ids) {
    return InvalidArgument(kOp, "[offsets[", count - 1, "]: expected at most ", num_ids, ", the number of ids, got ",
                           offsets[count - 1], "]");
  }
  return {};
}

}  // namespace

Status CheckBags(const BagOperands& operands) noexcept {
  const auto& [ids, offsets, weights, include_last_offset, padding_id] = operands;
  if (Status s = CheckIds("indices", ids); !s.ok()) return s;
  if (Status s = CheckIds("offsets", offsets); !s.ok()) return s;
  if (Status s = CheckOperands(kOp, {{"indices", ids}, {"offsets", offsets}}); !s.ok()) return s;
  if (weights) {
    if (Status s = CheckOperands(kOp, {{"indices", ids}, {"weights", *weights}}); !s.ok()) return s;
    if (weights->shape != ids.shape) {
      return InvalidArgument(kOp, "[weights: expected shape ", ids.shape, ", got ", weights->shape, "]");
    }
  }
  if (include_last_offset && offsets.dim(0) == 0) {
    return InvalidArgument(kOp, "[offsets: expected at least one element with include_last_offset, got none]");
  }
  if (offsets.dim(0) > INT32_MAX) {
    return InvalidArgument(kOp, "[offsets: expected less than 2^31 bags, got ", offsets.dim(0), "]");
  }
  if (padding_id && ids.dim(0) > INT32_MAX) {
    return InvalidArgument(kOp, "[indices: expected less than 2^31 ids with padding, got ", ids.dim(0), "]");
  }
  return {};
}

Status CheckOffsets(const BagOperands& operands, const Context& ctx) noexcept {
  if (Status s = CheckBags(operands); !s.ok()) return s;
  TensorView offsets = operands.offsets;
  Result<Tensor> on_host = Tensor();
  if (!offsets.device.is_cpu()) {
    on_host = CopyTensor(offsets, Device::Cpu(), ctx);
    if (!on_host.ok()) return on_host.status();
    offsets = on_host->view();
  }
  const int64_t count = offsets.dim(0), num_ids = operands.ids.dim(0);
  return offsets.dtype == DType::kInt32 ? CheckAscending(offsets.As<int32_t>(), count, num_ids)
                                        : CheckAscending(offsets.As<int64_t>(), count, num_ids);
}

Result<Bags> CutIntoBags(const BagOperands& operands, const Context& ctx) noexcept {
  if (Status s = CheckBags(operands); !s.ok()) return s;
  Bags bags;
  bags.ids = operands.ids;
  bags.weights = operands.weights;
  bags.count = operands.offsets.dim(0) - (operands.include_last_offset ? 1 : 0);
  Status cut = cuda::RunOnDevice<bags::on_cuda::Kernels>(
      kOp, operands.ids.device,
      [&]() -> Status {
        if (Status s = CheckOffsets(operands, ctx); !s.ok()) return s;
        return bags::on_cpu::Cut(operands, ctx, bags);
      },
      [&](const bags::on_cuda::Kernels& kernels) -> Status { return kernels.cut(operands, ctx, bags); });
  if (!cut.ok()) return cut;
  return Result<Bags>(std::move(bags));
}

Result<Tensor> SpreadOverPositions(const Bags& bags, const TensorView& values, int64_t n, const Context& ctx) noexcept {
  const TensorView& positions = *bags.positions;
  return cuda::RunOnDevice<bags::on_cuda::Kernels>(
      kOp, values.device, [&] { return bags::on_cpu::Spread(positions, values, n, ctx); },
      [&](const bags::on_cuda::Kernels& kernels) { return kernels.spread(positions, values, n, ctx); });
}

Result<Scratch<int32_t>> Places(Device device, int64_t count, const Context& ctx) noexcept {
  return cuda::RunOnDevice<bags::on_cuda::Kernels>(
      kOp, device, [&] { return bags::on_cpu::Places(count, ctx); },
      [&](const bags::on_cuda::Kernels& kernels) { return kernels.places(count, ctx); });
}

}  // namespace raggrad
