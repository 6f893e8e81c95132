// Operators of torch.ops.raggrad whose forward makes a plan that serves backward, too: ids are sorted and checked once.
// operators.cc has their schemas.
//
// `plan` is the number of a plan, which lives until raggrad_torch_forget_plan. There are two forwards. One waits until
// the ids are checked, while the GPU already pools rows. The other never waits, so that a CUDA graph can hold a whole
// step, and returns a report that says later whether the ids were good.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "adapter.h"

namespace raggrad::torch_door {

// Pooled rows, plan.
std::tuple<TorchTensor, int64_t> EmbeddingBagAndPlan(const TorchTensor& weight, const TorchTensor& indices,
                                                     const TorchTensor& offsets, const MaybeTensor& per_sample_weights,
                                                     const std::string& mode, bool include_last_offset,
                                                     const MaybeText& accumulation);

// Pooled rows, report, plan. Never waits.
using PlannedRows = std::tuple<TorchTensor, TorchTensor, int64_t>;
PlannedRows EmbeddingBagPlanned(const TorchTensor& weight, const TorchTensor& indices, const TorchTensor& offsets,
                                const MaybeTensor& per_sample_weights, const std::string& mode,
                                const MaybeText& accumulation);

// Gradients. None of them waits. Weights may be more than the plan has ids: the first ones count.

TorchTensor EmbeddingBagPlannedGrad(const TorchTensor& grad, int64_t plan, const MaybeTensor& per_sample_weights,
                                    const std::string& mode, const MaybeText& accumulation);
// Values and rows. Only for plans of EmbeddingBagAndPlan.
TwoTensors EmbeddingBagPlannedGradRows(const TorchTensor& grad, int64_t plan, const MaybeTensor& per_sample_weights,
                                       const std::string& mode, const MaybeText& accumulation);
// An optimizer's step (updates.h). After a fault in the ids it changes nothing.
void EmbeddingBagPlannedGradApplyInPlace(const TorchTensor& table, const MaybeTensor& state1, const MaybeTensor& state2,
                                         const TorchTensor& grad, int64_t plan, const MaybeTensor& per_sample_weights,
                                         const std::string& combiner, const std::string& optimizer,
                                         double learning_rate, double epsilon, double beta1, double beta2, int64_t step,
                                         const MaybeText& accumulation, const MaybeTensor& rate);

// Throws the error that a report describes. Waits if it is in device memory.
void CheckReport(const TorchTensor& report);

}  // namespace raggrad::torch_door

// Frees a plan. A number that is none is ignored.
extern "C" [[gnu::visibility("default")]] void raggrad_torch_forget_plan(int64_t plan) noexcept;
