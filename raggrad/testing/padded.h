// Checks of padded results in host memory (ops/padded.h).
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "raggrad/core/context.h"
#include "raggrad/testing/owned.h"

namespace raggrad::testing {

// Rows [begin, end) of a tensor.
inline TensorView RowsOf(const TensorView& tensor, int64_t begin, int64_t end) {
  const size_t row_bytes =
      static_cast<size_t>(Shape::Product(tensor.shape.tail()).value_or(0)) * DTypeSize(tensor.dtype);
  TensorView rows = tensor;
  rows.data = tensor.As<char>() + static_cast<size_t>(begin) * row_bytes;
  rows.shape = Shape::WithDim0(end - begin, tensor.shape.tail());
  return rows;
}

// Whether all bytes are zero; of strings, all sizes.
inline bool IsZero(const TensorView& tensor) {
  const auto elements = static_cast<size_t>(tensor.shape.NumElements().value_or(0));
  if (tensor.dtype == DType::kString) {
    for (size_t i = 0; i < elements; ++i) {
      if (tensor.As<String>()[i].size != 0) return false;
    }
    return true;
  }
  for (size_t i = 0; i < elements * DTypeSize(tensor.dtype); ++i) {
    if (tensor.As<char>()[i] != 0) return false;
  }
  return true;
}

// Expects the rows of `want`, then zeros up to `max` rows.
inline void ExpectPaddedRows(const TensorView& padded, const TensorView& want, int64_t max) {
  const int64_t count = want.shape[0];
  ASSERT_EQ(padded.shape[0], max);
  EXPECT_EQ(Difference(RowsOf(padded, 0, count), want), "");
  EXPECT_TRUE(IsZero(RowsOf(padded, count, max)));
}

// Expects the rows of `want`, then rows of (first, 0, 0, ...). Of rank 1 or 2.
template <class Idx>
void ExpectPaddedIndices(const TensorView& padded, const TensorView& want, int64_t max, Idx first) {
  const int64_t count = want.shape[0], d = want.rank() == 1 ? 1 : want.shape[1];
  ASSERT_EQ(padded.shape[0], max);
  EXPECT_EQ(Difference(RowsOf(padded, 0, count), want), "");
  for (int64_t i = count * d; i < max * d; ++i) EXPECT_EQ(padded.As<Idx>()[i], i % d == 0 ? first : 0) << i;
}

// An allocator that notes which outputs it was asked for.
class OutputsAllocator final : public Allocator {
 public:
  void* Allocate(size_t bytes) noexcept override { return DefaultAllocator().Allocate(bytes); }
  void Deallocate(void* pointer, size_t bytes) noexcept override { DefaultAllocator().Deallocate(pointer, bytes); }
  void* AllocateOutput(const OutputSpec& spec) noexcept override {
    void* const memory = Allocate(spec.bytes);
    outputs_.push_back({spec.index, memory});
    return memory;
  }

  // Expects that each of the tensors is the output of its position, and that nothing else was asked for: a framework
  // has only one place for each output.
  void ExpectOnly(const std::vector<TensorView>& tensors) const {
    EXPECT_EQ(outputs_.size(), tensors.size());
    for (const auto& [index, memory] : outputs_) {
      ASSERT_LT(static_cast<size_t>(index), tensors.size());
      EXPECT_EQ(memory, tensors[static_cast<size_t>(index)].data) << "output " << index;
    }
  }

 private:
  struct Output {
    int index;
    const void* memory;
  };
  std::vector<Output> outputs_;
};

}  // namespace raggrad::testing
