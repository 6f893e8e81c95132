// Operators of torch.ops.raggrad that change rows of a table in place: one step of an optimizer. operators.cc has their
// schemas, raggrad/ops/sparse_segment/row_update.h the formulas.
//
// `optimizer` is "sgd", "adagrad", "adam" or "rowwise_adagrad". State 1 is Adagrad's sum or Adam's m, state 2 Adam's v;
// numbers that an optimizer does not have are not read. `rate`, one float64, stands in for the learning rate of the
// formulas, for Adam for its rate.
#pragma once

#include <string>

#include "adapter.h"

namespace raggrad::torch_door {

// `rows`, [n] or [1, n], may repeat and come in any order; the values of one row are added up first. If they are
// coalesced, which the caller has to know, none repeats and they ascend.
void ApplyRowsInPlace(const TorchTensor& table, const MaybeTensor& state1, const MaybeTensor& state2,
                      const TorchTensor& values, const TorchTensor& rows, const std::string& optimizer,
                      double learning_rate, double epsilon, double beta1, double beta2, int64_t step,
                      const MaybeText& accumulation, bool coalesced, const MaybeTensor& rate);

// The gradient of sparse_segment, summed row by row straight into the step: no rows are stored.
void SparseSegmentGradApplyInPlace(const TorchTensor& table, const MaybeTensor& state1, const MaybeTensor& state2,
                                   const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& segment_ids,
                                   const std::string& combiner, const std::string& optimizer, double learning_rate,
                                   double epsilon, double beta1, double beta2, int64_t step,
                                   const MaybeText& accumulation, const MaybeTensor& rate);

// The same for embedding_bag. Its mode is called combiner here: torch.compile cannot pass an argument `mode` to an
// operator that changes others.
void EmbeddingBagGradApplyInPlace(const TorchTensor& table, const MaybeTensor& state1, const MaybeTensor& state2,
                                  const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& offsets,
                                  const MaybeTensor& per_sample_weights, const std::string& combiner,
                                  bool include_last_offset, std::optional<int64_t> padding_idx,
                                  const std::string& optimizer, double learning_rate, double epsilon, double beta1,
                                  double beta2, int64_t step, const MaybeText& accumulation, const MaybeTensor& rate);

}  // namespace raggrad::torch_door
