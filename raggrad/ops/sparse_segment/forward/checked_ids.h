// Ids of either type in host memory that are known to be in range.
#pragma once

#include <cstdint>

#include "raggrad/core/tensor_view.h"

namespace raggrad::sparse_segment {

// The type is looked up for every id: a branch that is always predicted. With the type as a template parameter every
// loop over rows would be compiled twice.
class CheckedIds {
 public:
  CheckedIds() = default;
  explicit CheckedIds(const TensorView& ids) noexcept : data_(ids.data), wide_(ids.dtype == DType::kInt64) {}

  [[gnu::always_inline]] int64_t operator[](int64_t i) const noexcept {
    return wide_ ? static_cast<const int64_t*>(data_)[i] : static_cast<const int32_t*>(data_)[i];
  }

 private:
  const void* data_ = nullptr;
  bool wide_ = false;
};

}  // namespace raggrad::sparse_segment
