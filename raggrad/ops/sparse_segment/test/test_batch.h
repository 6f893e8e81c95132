// Batches of ids for tests of the gradients on a GPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "raggrad/ops/sparse_segment/sparse_segment.h"
#include "raggrad/ops/sparse_segment/test/test_ids.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/combiners.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/on_device.h"

namespace raggrad::sparse_segment {

using ::raggrad::testing::Array;
using ::raggrad::testing::Generator;
using ::raggrad::testing::kCombiners;
using ::raggrad::testing::OnDevice;

inline Context Sequential() {
  Context ctx;
  ctx.accumulation = Accumulation::kSequential;
  return ctx;
}

// Ids in host and in device memory.
struct Batch {
  Ids indices;
  Ids segment_ids;
  int32_t table_rows;
  int64_t num_segments;
  OnDevice device_indices[2];
  OnDevice device_segment_ids[2];

  Batch(std::vector<int64_t> index, std::vector<int64_t> segment, int32_t rows, int64_t segments)
      : indices(std::move(index)),
        segment_ids(std::move(segment)),
        table_rows(rows),
        num_segments(segments),
        device_indices{OnDevice(indices.As(DType::kInt32)), OnDevice(indices.As(DType::kInt64))},
        device_segment_ids{OnDevice(segment_ids.As(DType::kInt32)), OnDevice(segment_ids.As(DType::kInt64))} {}

  // Names row r lengths[r] times, in shuffled order. Segment ids are random, and sorted if the seed is even.
  static Batch OfRows(const std::vector<int64_t>& lengths, int64_t segments, uint64_t seed) {
    Generator random(seed);
    std::vector<int64_t> index = Generator::RowIds<int64_t>(lengths);
    for (size_t i = index.size(); i > 1; --i) {
      std::swap(index[i - 1], index[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
    }
    std::vector<int64_t> segment = random.UniformIds<int64_t>(std::ssize(index), segments);
    if (seed % 2 == 0) std::sort(segment.begin(), segment.end());
    return Batch(std::move(index), std::move(segment), static_cast<int32_t>(lengths.size()), segments);
  }
  static Batch Zipf(int64_t n, int32_t rows, int64_t segments, uint64_t seed) {
    Generator random(seed);
    std::vector<int64_t> segment = random.UniformIds<int64_t>(n, segments);
    std::sort(segment.begin(), segment.end());
    return Batch(random.ZipfIds<int64_t>(n, rows), std::move(segment), rows, segments);
  }

  TensorView index(DType dtype) const { return indices.As(dtype); }
  TensorView segment(DType dtype) const { return segment_ids.As(dtype); }
  const TensorView& device_index(DType dtype) const { return device_indices[dtype == DType::kInt64].view(); }
  const TensorView& device_segment(DType dtype) const { return device_segment_ids[dtype == DType::kInt64].view(); }
  TensorView dim0() const { return TensorView::Scalar(table_rows); }
};

// Rows that begin, end and continue at every kind of place in tiles of 32 and groups of 512 contributions.
inline std::vector<std::vector<int64_t>> LengthsOfRows() {
  std::vector<std::vector<int64_t>> all = {
      {1},
      {2, 0, 1},
      {31, 1, 32, 1, 33},
      {32, 32, 64},
      {511, 1, 1},
      {512},
      {512, 512},
      {513},
      {1024, 1},
      {511, 512, 513, 2},
      {5000},
      {1, 5000, 1, 31, 32},
      {16, 496, 480, 31, 1, 512},
      {9000},
      {20, 9000},
      {100, 400, 30'000},
      {0, 0, 1, 0, 700, 0},
      std::vector<int64_t>(1500, 1),
  };
  Generator random(3);
  for (const double mean : {1.5, 20.0, 300.0}) {
    all.push_back(random.RowLengths(static_cast<int64_t>(3000 / mean) + 2, mean));
  }
  return all;
}

inline void ExpectSameRows(const Result<SparseSegmentGradV2Output>& got,
                           const Result<SparseSegmentGradV2Output>& want) {
  using Output = SparseSegmentGradV2Output;
  testing::ExpectSame(got, want, &Output::sorted_unique_indices, &Output::output);
}

// Small whole values: their sums are exact in any order, so kFast has the CPU's bits, too.
template <class T>
Array<T> WholeGrad(const Batch& batch, int64_t width, uint64_t seed) {
  Generator random(seed);
  std::vector<T> values;
  for (int64_t i = 0; i < batch.num_segments * width; ++i) {
    const float value = static_cast<float>(random.Below(17) - 8);
    if constexpr (std::is_same_v<T, Half>) {
      values.push_back(cpu::BaselineConvert::NarrowToHalf(value));
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      values.push_back(cpu::BaselineConvert::NarrowToBFloat16(value));
    } else {
      values.push_back(value);
    }
  }
  return {std::move(values), Shape{batch.num_segments, width}};
}

}  // namespace raggrad::sparse_segment
