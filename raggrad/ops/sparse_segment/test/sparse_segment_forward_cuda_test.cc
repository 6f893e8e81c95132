// The forwards on a GPU: the CPU's bits and errors, whatever Context::accumulation is.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"
#include "raggrad/ops/sparse_segment/test/test_ids.h"
#include "raggrad/tensorflow_names.h"
#include "raggrad/testing/always_the_same.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/combiners.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/on_device.h"

namespace raggrad {
namespace {

using ::raggrad::sparse_segment::Ids;
using ::raggrad::testing::Array;
using ::raggrad::testing::ExpectAlwaysTheSame;
using ::raggrad::testing::ExpectEveryDeviceAllocationFailureIsReported;
using ::raggrad::testing::ExpectSame;
using ::raggrad::testing::Generator;
using ::raggrad::testing::GpuTest;
using ::raggrad::testing::GtestTypes;
using ::raggrad::testing::kCombiners;
using ::raggrad::testing::OnDevice;

// Compares both operators on the device with the CPU's, for all combiners and index types.
template <class V>
void ExpectCpusAnswer(const Array<V>& data, const Ids& indices, const Ids& segment_ids,
                      std::optional<int64_t> num_segments = {}) {
  const OnDevice device_data(data);
  const auto run = [&](SegmentCombiner combiner, const TensorView& d, const TensorView& i, const TensorView& s) {
    return num_segments ? SparseSegmentWithNumSegments(combiner, d, i, s, TensorView::Scalar(*num_segments))
                        : SparseSegment(combiner, d, i, s);
  };
  for (const DType index : {DType::kInt32, DType::kInt64}) {
    const OnDevice device_indices(indices.As(index));
    for (const DType segment : {DType::kInt32, DType::kInt64}) {
      const OnDevice device_segments(segment_ids.As(segment));
      for (const SegmentCombiner combiner : kCombiners) {
        SCOPED_TRACE("combiner " + std::to_string(static_cast<int>(combiner)) + ", " + std::string(DTypeName(index)) +
                     " indices, " + std::string(DTypeName(segment)) + " segment_ids");
        ExpectSame(run(combiner, device_data, device_indices, device_segments),
                   run(combiner, data, indices.As(index), segment_ids.As(segment)));
      }
    }
  }
}

template <class V>
void ExpectCpusAnswer(uint64_t seed, const std::vector<int64_t>& lengths, int64_t rows, const Shape& inner,
                      std::optional<int64_t> num_segments = {}) {
  Generator random(seed);
  const Shape shape = Shape::WithDim0(rows, inner.dims());
  const Ids segment_ids = Generator::RowIds<int64_t>(lengths);
  const Ids indices = random.UniformIds<int64_t>(std::ssize(segment_ids.wide), rows);
  ExpectCpusAnswer(Array<V>(random.HostileValues<V>(*shape.NumElements()), shape), indices, segment_ids, num_segments);
}

template <class V>
class SparseSegmentCudaTest : public GpuTest {};
TYPED_TEST_SUITE(SparseSegmentCudaTest, GtestTypes<sparse_segment::SumTypes>);

TYPED_TEST(SparseSegmentCudaTest, EveryLength) {
  std::vector<int64_t> lengths(42);
  std::iota(lengths.begin(), lengths.end(), 0);
  for (const int64_t width : {1, 7, 16, 131, 160}) ExpectCpusAnswer<TypeParam>(1, lengths, 50, Shape{width});
}

TYPED_TEST(SparseSegmentCudaTest, EveryShape) {
  uint64_t seed = 10;
  for (const Shape& inner :
       {Shape{}, Shape{3}, Shape{2, 5}, Shape{2, 0}, Shape{64}, Shape{129}, Shape{512}, Shape{1023}, Shape{3, 1000}}) {
    for (const int64_t segments : {1, 9, 300}) {
      SCOPED_TRACE(std::to_string(segments) + " segments, inner rank " + std::to_string(inner.rank()));
      const std::vector<int64_t> lengths = Generator(++seed).RowLengths(segments, 5);
      ExpectCpusAnswer<TypeParam>(seed, lengths, 11, inner, segments + 3);
    }
  }
}

TYPED_TEST(SparseSegmentCudaTest, LongSegmentsAndLongGaps) {
  std::vector<int64_t> lengths = Generator(4).RowLengths(3'000, 20);
  int64_t longest = 511;
  for (const size_t segment : {0U, 7U, 8U, 9U, 10U, 100U, 101U, 2'999U}) lengths[segment] = longest++;
  lengths[1'000] = 30'007;
  for (const int64_t width : {1, 5, 64, 165}) ExpectCpusAnswer<TypeParam>(5, lengths, 500, Shape{width});
  std::vector<int64_t> gaps(100'000, 0);
  for (const size_t segment : {70U, 50'000U, 50'001U, 99'998U}) gaps[segment] = 3;
  ExpectCpusAnswer<TypeParam>(6, gaps, 10, Shape{4}, 200'000);
}

TYPED_TEST(SparseSegmentCudaTest, AlwaysTheSame) {
  Generator random(11);
  std::vector<int64_t> lengths = random.RowLengths(3'000, 20);
  lengths[1'000] = 30'007;
  const Ids segment_ids = Generator::RowIds<int64_t>(lengths);
  const Ids indices = random.ZipfIds<int64_t>(std::ssize(segment_ids.wide), 500);
  const OnDevice data(Array<TypeParam>(random.Values<TypeParam>(500 * 33), Shape{500, 33}));
  const OnDevice device_indices(indices.As(DType::kInt32)), device_segments(segment_ids.As(DType::kInt64));
  ExpectAlwaysTheSame([&](const Context& ctx) { return SparseSegmentSum(data, device_indices, device_segments, ctx); });
  if (!Contains(FloatTypes{}, kDTypeOf<TypeParam>)) return;
  ExpectAlwaysTheSame(
      [&](const Context& ctx) { return SparseSegmentMean(data, device_indices, device_segments, ctx); });
}

TYPED_TEST(SparseSegmentCudaTest, NothingToPool) {
  for (const int64_t rows : {0, 4}) {
    ExpectCpusAnswer<TypeParam>(7, {}, rows, Shape{3});
    ExpectCpusAnswer<TypeParam>(7, {}, rows, Shape{3}, 5);
  }
}

TYPED_TEST(SparseSegmentCudaTest, Unaligned) {
  Generator random(8);
  const Array<TypeParam> data(random.Values<TypeParam>(1 + 10 * 16));
  const OnDevice device(data);
  const auto behind_first = [](TensorView view) {
    view.data = view.As<TypeParam>() + 1;
    view.shape = Shape{10, 16};
    return view;
  };
  const Array<int64_t> indices = random.UniformIds<int64_t>(100, 10), segment_ids = std::vector<int64_t>(100, 0);
  ExpectSame(SparseSegmentSum(behind_first(device), OnDevice(indices).view(), OnDevice(segment_ids).view()),
             SparseSegmentSum(behind_first(data), indices, segment_ids));
}

using SparseSegmentErrorsCudaTest = GpuTest;

TEST_F(SparseSegmentErrorsCudaTest, AreThoseOfTheCpu) {
  constexpr int64_t kIds = 3'000;
  Generator random(9);
  const Array<float> data(random.Values<float>(100 * 3), Shape{100, 3});
  const auto broken = [&](const std::function<void(std::vector<int64_t>&, std::vector<int64_t>&)>& change) {
    std::vector<int64_t> indices = random.UniformIds<int64_t>(kIds, 100), segment_ids;
    for (int64_t i = 0; i < kIds; ++i) segment_ids.push_back(i / 7);
    change(indices, segment_ids);
    for (const std::optional<int64_t> num_segments : {std::optional<int64_t>(), std::optional<int64_t>(429)}) {
      ExpectCpusAnswer(data, indices, segment_ids, num_segments);
    }
  };
  broken([](auto& indices, auto&) { indices[2'999] = 100, indices[1'234] = -1; });
  broken([](auto&, auto& segment_ids) { segment_ids[2'000] = 3; });
  broken([](auto& indices, auto& segment_ids) { segment_ids[2'000] = 3, indices[1'999] = 1'000'000; });
  broken([](auto& indices, auto& segment_ids) { segment_ids[2'000] = 3, indices[2'001] = 1'000'000; });
  broken([](auto&, auto& segment_ids) { segment_ids[0] = -1; });
  broken([](auto&, auto& segment_ids) { segment_ids[kIds - 1] = -1; });
  broken([](auto&, auto& segment_ids) { segment_ids[kIds - 1] = 5'000; });
}

TEST_F(SparseSegmentErrorsCudaTest, EveryAllocationFailureIsReported) {
  const OnDevice data(Array<BFloat16>(Generator(12).Values<BFloat16>(30), Shape{10, 3}));
  const OnDevice indices(Array<int32_t>({0, 9, 3})), segment_ids(Array<int64_t>({1, 1, 700}));
  const int32_t num_segments = 800;
  ExpectEveryDeviceAllocationFailureIsReported(
      [&](const Context& ctx) { return SparseSegmentMean(data, indices, segment_ids, ctx).status(); });
  ExpectEveryDeviceAllocationFailureIsReported([&](const Context& ctx) {
    return SparseSegmentMeanWithNumSegments(data, indices, segment_ids, TensorView::Scalar(num_segments), ctx).status();
  });
}

TEST_F(SparseSegmentErrorsCudaTest, TooManyRows) {
  const Array<float> data({1, 2}, Shape{2, 1});
  const Array<int32_t> index({0}), largest({INT32_MAX});
  ExpectSame(SparseSegmentSum(OnDevice(data), OnDevice(index), OnDevice(largest)),
             SparseSegmentSum(data, index, largest));
  const Array<int64_t> huge({INT64_MAX - 1}), wide_index({0});
  const int32_t three = 3;  // the largest id plus one wraps to less than this
  ExpectSame(SparseSegmentSumWithNumSegments(OnDevice(data), OnDevice(wide_index), OnDevice(largest),
                                             TensorView::Scalar(three)),
             SparseSegmentSumWithNumSegments(data, wide_index, largest, TensorView::Scalar(three)));
  const Array<float> wide({1, 2}, Shape{1, 2});
  ExpectSame(SparseSegmentSum(OnDevice(wide), OnDevice(wide_index), OnDevice(huge)),
             SparseSegmentSum(wide, wide_index, huge));
}

}  // namespace
}  // namespace raggrad
