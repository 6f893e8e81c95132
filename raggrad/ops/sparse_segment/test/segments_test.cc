// PoolSegments on the CPU: as if the rows had been sorted by segment.
#include <gmock/gmock.h>

#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/test/segments_case.h"
#include "raggrad/testing/combiners.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/owned.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::sparse_segment {
namespace {

using ::raggrad::testing::Array;
using ::raggrad::testing::Difference;
using ::raggrad::testing::EachDType;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::kCombiners;
using ::raggrad::testing::NameOfDType;
using ::raggrad::testing::Reproducible;
using ::raggrad::testing::StatusIs;
using ::testing::HasSubstr;

class SegmentsTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Each, SegmentsTest, EachDType(SumTypes{}), NameOfDType);

TEST_P(SegmentsTest, AsIfRowsWereSorted) {
  for (const SegmentsCase& rows : SegmentsCases(GetParam(), Shape{3})) {
    SCOPED_TRACE(rows.name);
    ForEachSetting([&](const Context& setting) {
      for (const Context& ctx : {setting, Reproducible(setting)}) {
        for (const SegmentCombiner combiner : kCombiners) {
          if (combiner != SegmentCombiner::kSum && !Contains(FloatTypes{}, GetParam())) continue;
          const Result<Tensor> want = rows.Expected(combiner, ctx);
          ASSERT_THAT(want, IsOk());
          for (const DType type : kIndexTypes) {
            for (const OutOfRange mode : {OutOfRange::kDrop, OutOfRange::kError}) {
              const Result<Tensor> got =
                  PoolSegments(combiner, rows.data.view(), rows.With(rows.ids.As(type), mode), ctx);
              if (mode == OutOfRange::kError && !rows.AllInRange()) {
                EXPECT_THAT(got, StatusIs(Code::kInvalidArgument, HasSubstr("a segment id is out of range")));
                continue;
              }
              ASSERT_THAT(got, IsOk());
              EXPECT_EQ(Difference(got->view(), want->view()), "");
            }
          }
        }
      }
    });
  }
}

TEST_P(SegmentsTest, BagsAsIfIdsWereSorted) {
  for (SegmentsCase& segments : SegmentsCases(GetParam(), Shape{3})) {
    SCOPED_TRACE(segments.name);
    const BagsCase rows(std::move(segments), Shape{3});
    const bool is_float = Contains(FloatTypes{}, GetParam());
    ForEachSetting([&](const Context& setting) {
      for (const Context& ctx : {setting, Reproducible(setting)}) {
        for (const SegmentCombiner combiner : kCombiners) {
          if (combiner != SegmentCombiner::kSum && !is_float) continue;
          for (const bool weighted : {false, true}) {
            if (weighted && !is_float) continue;
            const Result<Tensor> want = rows.Expected(combiner, weighted, ctx);
            ASSERT_THAT(want, IsOk());
            const TensorView weights = rows.weights;
            for (const DType type : kIndexTypes) {
              const Result<Tensor> got =
                  PoolSegments(rows.Pooling(combiner, weighted ? &weights : nullptr), rows.table.view(),
                               rows.indices.As(type), rows.bags.With(rows.bags.ids.As(type)), ctx);
              ASSERT_THAT(got, IsOk());
              EXPECT_EQ(Difference(got->view(), want->view()), "");
            }
          }
        }
      }
    });
  }
}

// The first one whose segment is not left out.
TEST(Segments, NamesTheFirstBadIndex) {
  const Array<float> table({1, 2, 3}, Shape{3, 1}), none(std::vector<float>{}, Shape{0, 1});
  for (const std::vector<int64_t>& order : {std::vector<int64_t>{0, 0, 5, 1, 1}, {1, 0, 5, 1, 0}}) {
    const Ids bags(order), indices({0, 2, 7, 3, -1});
    const auto pool = [&](const TensorView& rows) {
      return PoolSegments(SegmentCombiner::kMean, rows, indices.As(DType::kInt64),
                          {bags.As(DType::kInt32), 2, OutOfRange::kDrop});
    };
    EXPECT_THAT(pool(table), StatusIs(Code::kInvalidArgument,
                                      "SegmentMean: an id is out of range [indices[3]: expected "
                                      "0 to 2, got 3]"));
    EXPECT_THAT(pool(none), StatusIs(Code::kInvalidArgument, HasSubstr("[indices[0]: expected none")));
  }
}

TEST(Segments, NamesTheArgumentAtFault) {
  const Array<float> data({1, 2, 3}, Shape{3, 1}), scalar({1}, Shape{});
  const Array<int32_t> ids({0, 1, 0}), two({0, 1});
  const Array<int32_t> matrix({0, 1, 0}, Shape{3, 1});
  const auto pool = [&](const TensorView& rows, const TensorView& segment_ids, int64_t count) {
    return PoolSegments(SegmentCombiner::kMean, rows, {segment_ids, count});
  };
  EXPECT_THAT(pool(data, two, 2),
              StatusIs(Code::kInvalidArgument, HasSubstr("[segment_ids: expected one for every row")));
  EXPECT_THAT(pool(data, matrix, 2), StatusIs(Code::kInvalidArgument, HasSubstr("[segment_ids: expected rank 1")));
  EXPECT_THAT(pool(data, data, 2), StatusIs(Code::kInvalidArgument, HasSubstr("segment_ids has dtype float32")));
  EXPECT_THAT(pool(ids, ids, 2), StatusIs(Code::kInvalidArgument, HasSubstr("data has dtype int32")));
  EXPECT_THAT(pool(scalar, ids, 2), StatusIs(Code::kInvalidArgument, HasSubstr("[data: expected at least rank 1")));
  EXPECT_THAT(pool(data, ids, -1), StatusIs(Code::kInvalidArgument, HasSubstr("[num_segments: expected 0 to")));
  EXPECT_THAT(pool(data, ids, int64_t{1} << 31), StatusIs(Code::kInvalidArgument, HasSubstr("[num_segments:")));
  const auto bags = [&](const TensorView& indices, const TensorView& segment_ids) {
    return PoolSegments(SegmentCombiner::kMean, data, indices, {segment_ids, 2});
  };
  EXPECT_THAT(bags(two, ids),
              StatusIs(Code::kInvalidArgument, HasSubstr("[segment_ids: expected one for every index")));
  EXPECT_THAT(bags(data, ids), StatusIs(Code::kInvalidArgument, HasSubstr("indices has dtype float32")));
  EXPECT_THAT(bags(matrix, ids), StatusIs(Code::kInvalidArgument, HasSubstr("[indices: expected rank 1")));
  EXPECT_THAT(PoolSegments({SegmentCombiner::kSum, {data}}, data, two, {two, 2}),
              StatusIs(Code::kInvalidArgument, HasSubstr("[weights: expected shape")));
  EXPECT_THAT(pool(data, ids, 1),
              StatusIs(Code::kInvalidArgument, HasSubstr("[segment_ids[1]: expected 0 to 0, got 1")));
}

TEST(Segments, EveryAllocationFailureIsReported) {
  for (const std::vector<int64_t>& ids : {std::vector<int64_t>{0, 1, 1}, std::vector<int64_t>{1, 0, 1}}) {
    SegmentsCase rows("", DType::kFloat32, ids, 2, Shape{2});
    ExpectEveryAllocationFailureIsReported({}, [&](const Context& ctx) {
      return PoolSegments(SegmentCombiner::kMean, rows.data.view(), rows.With(rows.ids.As(DType::kInt64)), ctx)
          .status();
    });
    const BagsCase bags(std::move(rows), Shape{2});
    const TensorView weights = bags.weights;
    ExpectEveryAllocationFailureIsReported({}, [&](const Context& ctx) {
      return PoolSegments(bags.Pooling(SegmentCombiner::kMean, &weights), bags.table.view(),
                          bags.indices.As(DType::kInt32), bags.bags.With(bags.bags.ids.As(DType::kInt64)), ctx)
          .status();
    });
  }
}

}  // namespace
}  // namespace raggrad::sparse_segment
