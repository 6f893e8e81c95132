// The engine's pooling and its gradients on torch's tensors, for all operators that make ids and segments.
#pragma once

#include <string_view>

#include "adapter.h"
#include "raggrad/core/scratch.h"

namespace raggrad::torch_door {

// Ids and the segments they belong to, wherever they came from.
struct Ids {
  TensorView indices;
  TensorView segment_ids;
};

TorchTensor Pool(Call& call, const SegmentPooling& pooling, const TorchTensor& data, const Ids& ids,
                 int64_t num_segments);
TorchTensor DenseGrad(Call& call, const SegmentPooling& pooling, const TorchTensor& grad, const Ids& ids,
                      int64_t table_rows);
// Values and rows.
TwoTensors GradRows(Call& call, const SegmentPooling& pooling, const TorchTensor& grad, const Ids& ids,
                    int64_t table_rows);

// 0, 1, 2, ... on the device of `like`.
class PlacesLike {
 public:
  // An error names the argument that is too long.
  PlacesLike(Call& call, const TorchTensor& like, int64_t count, std::string_view argument);
  const TensorView& view() const noexcept { return view_; }

 private:
  Scratch<int32_t> memory_;
  TensorView view_;
};

}  // namespace raggrad::torch_door
