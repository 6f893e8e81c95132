// Inputs and checks that the gradient's tests share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "raggrad/ops/sparse_slice/sparse_slice.h"
#include "raggrad/ops/sparse_slice/test/reference.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/owned.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::sparse_slice {

using ::raggrad::testing::Array;
using ::raggrad::testing::Generator;

inline constexpr int64_t kSplit = 7 * 8192 + 100;           // rows enough for seven threads
inline constexpr int64_t kCopySplit = 3 * 16 * 8192 + 100;  // the same for copies without comparison
inline constexpr auto kMin = std::numeric_limits<int64_t>::min();
inline constexpr auto kMax = std::numeric_limits<int64_t>::max();

using Row = std::vector<int64_t>;

// The index operands of a call.
struct Indices {
  std::vector<Row> input;
  Row start;
  std::vector<Row> output;

  int64_t n() const { return static_cast<int64_t>(input.size()); }
  int64_t m() const { return static_cast<int64_t>(output.size()); }
  Array<int64_t> Matrix(const std::vector<Row>& rows) const {
    Array<int64_t> matrix({}, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(start.size())});
    for (const Row& row : rows) matrix.values.insert(matrix.values.end(), row.begin(), row.end());
    return matrix;
  }
};

inline int64_t WrappingAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline int64_t WrappingSubtract(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

inline Row Moved(Row row, const Row& start) {
  for (size_t c = 0; c < row.size(); ++c) row[c] = WrappingSubtract(row[c], start[c]);
  return row;
}

// The operands after a forward that keeps the rows with keep(row).
template <class F>
Indices Slice(std::vector<Row> input, Row start, const F& keep) {
  Indices indices{std::move(input), std::move(start), {}};
  for (const Row& row : indices.input) {
    if (keep(row)) indices.output.push_back(Moved(row, indices.start));
  }
  return indices;
}

inline std::vector<Row> RandomRows(Generator& random, int64_t count, int64_t dims, int64_t limit) {
  std::vector<Row> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(random.UniformIds<int64_t>(dims, limit));
  return rows;
}

inline std::vector<Row> SortedRows(Generator& random, int64_t count, int64_t dims, int64_t limit) {
  std::vector<Row> rows = RandomRows(random, count, dims, limit);
  std::sort(rows.begin(), rows.end());
  return rows;
}

// A function that says whether a row is in [start, start + size) in every column.
inline auto InBox(const Row& start, int64_t size) {
  return [start, size](const Row& row) {
    for (size_t c = 0; c < row.size(); ++c) {
      if (row[c] < start[c] || row[c] >= start[c] + size) return false;
    }
    return true;
  };
}

// Expects the reference's bits, or its failure, under every setting. Returns whether it was a success.
inline bool ExpectSameAsReference(const TensorView& grad, const Array<int64_t>& input, const Array<int64_t>& start,
                                  const Array<int64_t>& output) {
  const int64_t m = output.shape[0];
  const auto want = reference::Grad(input.values, start.values, output.values, input.shape[0], m);
  const Tensor want_grad = ::raggrad::testing::GatherOrZero(grad, want.sources);
  const std::string failure =
      "SparseSliceGrad: Elements of backprop_val_grad aren't all propagated. Num elements:" + std::to_string(m) +
      ", used: " + std::to_string(want.used) + " ";
  ::raggrad::testing::ForEachSetting([&](const Context& base) {
    ::raggrad::testing::CountingAllocator allocator;
    Context ctx = base;
    ctx.allocator = &allocator;
    const auto got = SparseSliceGrad(grad, input, start, output, ctx);
    if (want.used < m) {
      EXPECT_THAT(got, ::raggrad::testing::StatusIs(Code::kInternal, ::testing::HasSubstr(failure)));
      EXPECT_EQ(allocator.live_bytes(), 0U);
    } else {
      ASSERT_THAT(got, ::raggrad::testing::IsOk());
      EXPECT_EQ(::raggrad::testing::Difference(got->view(), want_grad.view()), "");
    }
  });
  return want.used == m;
}

inline bool ExpectSameAsReference(const Indices& indices, const TensorView& grad) {
  return ExpectSameAsReference(grad, indices.Matrix(indices.input), indices.start, indices.Matrix(indices.output));
}
inline bool ExpectSameAsReference(const Indices& indices, uint64_t seed = 1) {
  return ExpectSameAsReference(indices, Array(Generator(seed).Values<float>(indices.m())));
}

}  // namespace raggrad::sparse_slice
