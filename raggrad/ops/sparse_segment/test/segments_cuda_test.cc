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
using ::raggrad::testing::EachDType;
using ::raggrad::testing::ExpectAlwaysTheSame;
using ::raggrad::testing::ExpectEveryDeviceAllocationFailureIsReported;
using ::raggrad::testing::ExpectSame;
using ::raggrad::testing::Generator;
using ::raggrad::testing::GpuTest;
using ::raggrad::testing::kCombiners;
using ::raggrad::testing::NameOfDType;
using ::raggrad::testing::OnDevice;
using ::raggrad::testing::Reproducible;

// Both ways to treat ids out of range, and every type of ids.
void ExpectCpusAnswer(const SegmentsCase& rows) {
  SCOPED_TRACE(rows.name);
  const OnDevice data(rows.data.view());
  for (const DType type : kIndexTypes) {
    const OnDevice ids(rows.ids.As(type));
    for (const OutOfRange mode : {OutOfRange::kDrop, OutOfRange::kError}) {
      for (const SegmentCombiner combiner : kCombiners) {
        for (const Context& ctx : {Context(), Reproducible()}) {
          ExpectSame(PoolSegments(combiner, data, rows.With(ids, mode), ctx),
                     PoolSegments(combiner, rows.data.view(), rows.With(rows.ids.As(type), mode), ctx));
        }
      }
    }
  }
}

class SegmentsCudaTest : public GpuTest, public ::testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(Each, SegmentsCudaTest, EachDType(SumTypes{}), NameOfDType);

TEST_P(SegmentsCudaTest, HasTheCpusBits) {
  for (const Shape& inner : {Shape{}, Shape{3}, Shape{64}, Shape{2, 0}}) {
    for (const SegmentsCase& rows : SegmentsCases(GetParam(), inner)) ExpectCpusAnswer(rows);
  }
}

TEST_P(SegmentsCudaTest, BagsHaveTheCpusBits) {
  const bool is_float = Contains(FloatTypes{}, GetParam());
  for (const Shape& inner : {Shape{}, Shape{5}, Shape{32}, Shape{0}}) {
    for (SegmentsCase& segments : SegmentsCases(GetParam(), inner)) {
      SCOPED_TRACE(segments.name);
      const BagsCase rows(std::move(segments), inner);
      const OnDevice table(rows.table.view()), weights(rows.weights);
      const TensorView host_weights = rows.weights;
      for (const DType type : kIndexTypes) {
        const OnDevice bags(rows.bags.ids.As(type)), indices(rows.indices.As(type));
        for (const SegmentCombiner combiner : kCombiners) {
          for (const Context& ctx : {Context(), Reproducible()}) {
            for (const bool weighted : {false, true}) {
              if (weighted && !is_float) continue;
              for (const OutOfRange mode : {OutOfRange::kDrop, OutOfRange::kError}) {
                ExpectSame(PoolSegments(rows.Pooling(combiner, weighted ? &weights.view() : nullptr), table, indices,
                                        rows.bags.With(bags, mode), ctx),
                           PoolSegments(rows.Pooling(combiner, weighted ? &host_weights : nullptr), rows.table.view(),
                                        rows.indices.As(type), rows.bags.With(rows.bags.ids.As(type), mode), ctx));
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(SegmentsCudaTest, KnowsThatIdsAscend) {
  for (const SegmentsCase& rows : SegmentsCases(GetParam(), Shape{5})) {
    if (!std::ranges::is_sorted(rows.ids.wide)) continue;
    SCOPED_TRACE(rows.name);
    const OnDevice data(rows.data.view());
    for (const DType type : kIndexTypes) {
      const OnDevice ids(rows.ids.As(type));
      Segments segments = rows.With(ids);
      segments.ascending = true;
      ExpectSame(PoolSegments(SegmentCombiner::kSum, data, segments),
                 PoolSegments(SegmentCombiner::kSum, rows.data.view(), rows.With(rows.ids.As(type))));
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

TEST_F(SegmentsErrorsCudaTest, BadIndices) {
  const Array<float> table({1, 2, 3}, Shape{3, 1}), none(std::vector<float>{}, Shape{0, 1});
  for (const std::vector<int64_t>& order : {std::vector<int64_t>{0, 0, 5, 1, 1}, {1, 0, 5, 1, 0}, {5, 5, 5, -1, 5}}) {
    const Ids bags(order), indices({0, 2, 7, 3, -1});
    const OnDevice device_bags(bags.As(DType::kInt32)), device_indices(indices.As(DType::kInt64));
    for (const Array<float>* const rows : {&table, &none}) {
      for (const int64_t count : {2, 0}) {
        ExpectSame(PoolSegments(SegmentCombiner::kMean, OnDevice(*rows), device_indices,
                                {device_bags, count, OutOfRange::kDrop}),
                   PoolSegments(SegmentCombiner::kMean, *rows, indices.As(DType::kInt64),
                                {bags.As(DType::kInt32), count, OutOfRange::kDrop}));
      }
    }
  }
}

TEST_F(SegmentsErrorsCudaTest, NothingDividesByWeights) {
  const OnDevice table(Array<float>({1, 2, 3}, Shape{3, 1})), ids(Array<int32_t>({1, 0, 2}));
  const OnDevice weights(Array<float>({1, 2, 3}));
  const auto pool = [&](SegmentCombiner combiner) {
    return PoolSegments({combiner, {weights.view()}}, table, ids, {ids, 3}).status().code();
  };
  EXPECT_EQ(pool(SegmentCombiner::kMean), Code::kUnimplemented);
  EXPECT_EQ(pool(SegmentCombiner::kSum), Code::kOk);
}

TEST_F(SegmentsErrorsCudaTest, AlwaysTheSame) {
  const SegmentsCase rows("", DType::kFloat32, Generator(4).ZipfIds<int64_t>(30'000, 500), 500, Shape{33});
  const OnDevice data(rows.data.view()), ids(rows.ids.As(DType::kInt64));
  ExpectAlwaysTheSame(
      [&](const Context& ctx) { return PoolSegments(SegmentCombiner::kMean, data, rows.With(ids), ctx); });
}

TEST_F(SegmentsErrorsCudaTest, EveryAllocationFailureIsReported) {
  const SegmentsCase rows("", DType::kFloat32, {3, 0, 700}, 800, Shape{3});
  const OnDevice data(rows.data.view()), ids(rows.ids.As(DType::kInt64));
  for (const OutOfRange mode : {OutOfRange::kDrop, OutOfRange::kError}) {
    ExpectEveryDeviceAllocationFailureIsReported([&](const Context& ctx) {
      return PoolSegments(SegmentCombiner::kMean, data, rows.With(ids, mode), ctx).status();
    });
  }
}

}  // namespace
}  // namespace raggrad::sparse_segment
