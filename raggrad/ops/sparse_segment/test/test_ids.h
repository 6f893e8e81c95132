// Ids for tests, kept in both index types.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "raggrad/core/tensor_view.h"

namespace raggrad::sparse_segment {

inline constexpr DType kIndexTypes[] = {DType::kInt32, DType::kInt64};

struct Ids {
  std::vector<int64_t> wide;
  std::vector<int32_t> narrow;

  Ids(std::vector<int64_t> ids) : wide(std::move(ids)), narrow(wide.begin(), wide.end()) {}  // NOLINT: implicit
  TensorView As(DType dtype) const {
    return dtype == DType::kInt32 ? TensorView::Vector<int32_t>(narrow) : TensorView::Vector<int64_t>(wide);
  }
};

// n ids in [0, limit), all equally likely.
inline std::vector<int64_t> RandomIds(int64_t n, int64_t limit, std::mt19937& random) {
  std::vector<int64_t> ids(static_cast<size_t>(n));
  for (int64_t& id : ids) id = static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
  return ids;
}

struct IndexTypePair {
  DType index;
  DType segment;
};

// All four pairs for short inputs, one pair for long ones. Long inputs test threads, not types, and all four would take
// minutes under ThreadSanitizer.
inline std::vector<IndexTypePair> IndexTypePairs(const Ids& ids) {
  if (ids.wide.size() > 1000) return {{DType::kInt64, DType::kInt32}};
  return {{DType::kInt32, DType::kInt32},
          {DType::kInt32, DType::kInt64},
          {DType::kInt64, DType::kInt32},
          {DType::kInt64, DType::kInt64}};
}

}  // namespace raggrad::sparse_segment
