// PoolSegments on a GPU: the CPU's bits and errors.
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/test/segments_case.h"
#include "raggrad/testing/always_the_same.h"
#include "raggrad/testing/combiners.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/on_device.h"
#include "raggrad/testing/settings.h"

namespace raggrad::sparse_segment {
namespace {

using ::raggrad::testing::Array;
using ::raggrad::testing::ExpectAlwaysTheSame;
using ::raggrad::testing::ExpectEveryDeviceAllocationFailureIsReported;
using ::raggrad::testing::ExpectSame;
using ::raggrad::testing::Generator;
using ::raggrad::testing::GpuTest;
using ::raggrad::testing::GtestTypes;
using ::raggrad::testing::kCombiners;
using ::raggrad::testing::OnDevice;
using ::raggrad::testing::Reproducible;

// Both ways to treat ids out of range, and every type of ids.
template <class V>
void ExpectCpusAnswer(const SegmentsCase<V>& rows) {
  SCOPED_TRACE(rows.name);
  const OnDevice data(rows.data);
  for (const DType type : kIndexTypes) {
    const OnDevice ids(rows.ids.As(type));
    for (const OutOfRange mode : {OutOfRange::kDrop, OutOfRange::kError}) {
      for (const SegmentCombiner combiner : kCombiners) {
        for (const Context& ctx : {Context(), Reproducible()}) {
          ExpectSame(PoolSegments(combiner, data, rows.With(ids, mode), ctx),
                     PoolSegments(combiner, rows.data, rows.With(rows.ids.As(type), mode), ctx));
        }
      }
    }
  }
}

template <class V>
class SegmentsCudaTest : public GpuTest {};
TYPED_TEST_SUITE(SegmentsCudaTest, GtestTypes<SumTypes>);

TYPED_TEST(SegmentsCudaTest, HasTheCpusBits) {
  for (const Shape& inner : {Shape{}, Shape{3}, Shape{64}, Shape{2, 0}}) {
    for (const SegmentsCase<TypeParam>& rows : SegmentsCases<TypeParam>(inner)) ExpectCpusAnswer(rows);
  }
}

TYPED_TEST(SegmentsCudaTest, KnowsThatIdsAscend) {
  for (const SegmentsCase<TypeParam>& rows : SegmentsCases<TypeParam>(Shape{5})) {
    if (!std::ranges::is_sorted(rows.ids.wide)) continue;
    SCOPED_TRACE(rows.name);
    const OnDevice data(rows.data);
    for (const DType type : kIndexTypes) {
      const OnDevice ids(rows.ids.As(type));
      Segments segments = rows.With(ids);
      segments.ascending = true;
      ExpectSame(PoolSegments(SegmentCombiner::kSum, data, segments),
                 PoolSegments(SegmentCombiner::kSum, rows.data, rows.With(rows.ids.As(type))));
    }
  }
}

class SegmentsErrorsCudaTest : public GpuTest {};

// A caller that is wrong about the order gets wrong sums of the rows that there are. Sums of ones tell which.
TEST_F(SegmentsErrorsCudaTest, FalsePromiseReadsNothingElse) {
  constexpr int64_t kIds = 100'000;
  Generator random(3);
  for (const int64_t count : {int64_t{1}, int64_t{1'000}, int64_t{100'000}}) {
    const Ids ids(random.UniformIds<int64_t>(kIds, count + 7));
    const OnDevice data(Array<int32_t>(std::vector<int32_t>(kIds, 1), Shape{kIds, 1})), device(ids.As(DType::kInt32));
    const Result<Tensor> got =
        PoolSegments(SegmentCombiner::kSum, data, {device, count, OutOfRange::kDrop, /*ascending=*/true});
    ASSERT_TRUE(got.ok()) << got.status().message();
    const Tensor sums = testing::OnHost(got->view());
    int64_t total = 0;
    for (int64_t s = 0; s < count; ++s) {
      ASSERT_GE(sums.As<int32_t>()[s], 0);
      total += sums.As<int32_t>()[s];
    }
    EXPECT_LE(total, kIds) << "no row is added twice";
  }
}

TEST_F(SegmentsErrorsCudaTest, AlwaysTheSame) {
  const SegmentsCase<float> rows("", Generator(4).ZipfIds<int64_t>(30'000, 500), 500, Shape{33});
  const OnDevice data(rows.data), ids(rows.ids.As(DType::kInt64));
  ExpectAlwaysTheSame(
      [&](const Context& ctx) { return PoolSegments(SegmentCombiner::kMean, data, rows.With(ids), ctx); });
}

TEST_F(SegmentsErrorsCudaTest, EveryAllocationFailureIsReported) {
  const SegmentsCase<float> rows("", {3, 0, 700}, 800, Shape{3});
  const OnDevice data(rows.data), ids(rows.ids.As(DType::kInt64));
  for (const OutOfRange mode : {OutOfRange::kDrop, OutOfRange::kError}) {
    ExpectEveryDeviceAllocationFailureIsReported([&](const Context& ctx) {
      return PoolSegments(SegmentCombiner::kMean, data, rows.With(ids, mode), ctx).status();
    });
  }
}

}  // namespace
}  // namespace raggrad::sparse_segment
