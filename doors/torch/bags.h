// Bags of torch's tensors, for operators of embedding bags.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include "adapter.h"
#include "raggrad/ops/bags/bags.h"

namespace raggrad::torch_door {

inline BagOperands OperandsOf(Call& call, const TorchTensor& indices, const TorchTensor& offsets,
                              const MaybeTensor& per_sample_weights, bool include_last_offset,
                              std::optional<int64_t> padding_idx) {
  BagOperands operands{.ids = call.View(indices),
                       .offsets = call.View(offsets),
                       .include_last_offset = include_last_offset,
                       .padding_id = padding_idx};
  if (per_sample_weights) operands.weights = call.View(*per_sample_weights);
  return operands;
}

inline SegmentPooling PoolingOf(std::string_view op, const std::string& mode, const Bags& bags) {
  const SegmentCombiner combiner = CombinerOf(op, "mode", mode);
  if (!bags.weights) return combiner;
  return {combiner, {*bags.weights, WeightDivisor::kCount}};
}

// The engine's answer. On a GPU bad offsets become a bad segment id, which the user never wrote: the error names the
// offset instead.
template <class F>
auto WithBags(Call& call, const BagOperands& operands, const F& run) {
  const Bags bags = call.Get(CutIntoBags(operands, call.context()));
  try {
    return run(bags);
  } catch (const std::runtime_error&) {
    if (!operands.offsets.device.is_cpu()) call.Check(CheckOffsets(operands, call.context()));
    throw;
  }
}

}  // namespace raggrad::torch_door
