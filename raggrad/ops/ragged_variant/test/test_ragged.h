// Random ragged tensors for the tests of this family, and their comparison with the reference.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "raggrad/ops/ragged_variant/test/reference.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/owned.h"

namespace raggrad::ragged_variant {

using testing::Generator;

template <class... Ts>
std::vector<DType> DTypes(TypeList<Ts...>) {
  return {kDTypeOf<Ts>...};
}

inline Tensor RandomTensor(Generator& random, DType dtype, const Shape& shape) {
  const int64_t count = shape.NumElements().value();
  if (dtype == DType::kString) return testing::TensorOfStrings(shape, random.Strings(count, 20));
  std::string bytes;
  while (bytes.size() < static_cast<size_t>(count) * DTypeSize(dtype)) {
    const uint64_t bits = dtype == DType::kBool ? random.Bits() & 0x0101010101010101 : random.Bits();
    bytes.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
  }
  return testing::TensorOfBytes(dtype, shape, bytes.substr(0, static_cast<size_t>(count) * DTypeSize(dtype)));
}

inline Tensor SplitsTensor(DType dtype, const std::vector<int64_t>& splits) {
  const Shape shape{static_cast<int64_t>(splits.size())};
  if (dtype == DType::kInt64) return testing::TensorOf(splits, shape);
  return testing::TensorOf(std::vector<int32_t>(splits.begin(), splits.end()), shape);
}

// A ragged tensor with random bits.
class RandomRagged {
 public:
  RandomRagged(Generator& random, DType dtype, DType splits_dtype, int levels, int64_t rows, double mean,
               const std::vector<int64_t>& inner) {
    for (int i = 0; i < levels; ++i) {
      const std::vector<int64_t> splits = Generator::RowSplits<int64_t>(random.RowLengths(rows, mean));
      tensors_.push_back(SplitsTensor(splits_dtype, splits));
      splits_.push_back(tensors_.back().view());
      rows = splits.back();
    }
    tensors_.push_back(RandomTensor(random, dtype, Shape::WithDim0(rows, inner)));
  }

  std::span<const TensorView> splits() const { return splits_; }
  const TensorView& values() const { return tensors_.back().view(); }
  RaggedView view() const { return {splits_, values()}; }

 private:
  std::vector<Tensor> tensors_;
  std::vector<TensorView> splits_;
};

inline void ExpectSame(const TensorView& got, const ReferenceOutput& want) {
  ASSERT_EQ(got.shape, want.shape);
  std::vector<std::string> values;
  ReferenceAppend(got, 0, got.shape.NumElements().value(), values);
  ASSERT_TRUE(values == want.values);
}

inline void ExpectSame(const RaggedView& got, const ReferenceRagged& want, DType splits_dtype) {
  ASSERT_EQ(got.nested_splits.size(), want.splits.size());
  for (size_t i = 0; i < want.splits.size(); ++i) {
    ASSERT_EQ(got.nested_splits[i].dtype, splits_dtype);
    ASSERT_EQ(got.nested_splits[i].rank(), 1);
    ASSERT_TRUE(ReferenceNumbers(got.nested_splits[i]) == want.splits[i]) << "level " << i;
  }
  ExpectSame(got.values, want.values);
}

}  // namespace raggrad::ragged_variant
