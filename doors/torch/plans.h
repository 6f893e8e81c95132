// Operators of torch.ops.raggrad that never wait for a GPU, so that a CUDA graph can hold a whole step. operators.cc
// has their schemas.
//
// The forward makes a plan (SegmentPlan::MakeWithoutWaiting), which serves backward, too. `plan` is its number; it
// lives until raggrad_torch_forget_plan. The report says later whether the ids were good.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "adapter.h"

namespace raggrad::torch_door {

// Pooled rows, report, plan.
using PlannedRows = std::tuple<TorchTensor, TorchTensor, int64_t>;

PlannedRows EmbeddingBagPlanned(const TorchTensor& weight, const TorchTensor& indices, const TorchTensor& offsets,
                                const MaybeTensor& per_sample_weights, const std::string& mode,
                                const MaybeText& accumulation);
// The dense gradient.
TorchTensor EmbeddingBagPlannedGrad(const TorchTensor& grad, int64_t plan, const MaybeTensor& per_sample_weights,
                                    const std::string& mode, const MaybeText& accumulation);
// An optimizer's step (updates.h). After a fault in the ids it changes nothing.
void EmbeddingBagPlannedGradApplyInPlace(const TorchTensor& table, const MaybeTensor& state1, const MaybeTensor& state2,
                                         const TorchTensor& grad, int64_t plan, const MaybeTensor& per_sample_weights,
                                         const std::string& combiner, const std::string& optimizer,
                                         double learning_rate, double epsilon, double beta1, double beta2, int64_t step,
                                         const MaybeText& accumulation);

// Throws the error that a report describes. Waits if it is in device memory.
void CheckReport(const TorchTensor& report);

}  // namespace raggrad::torch_door

// Frees a plan. A number that is none is ignored.
extern "C" [[gnu::visibility("default")]] void raggrad_torch_forget_plan(int64_t plan) noexcept;
