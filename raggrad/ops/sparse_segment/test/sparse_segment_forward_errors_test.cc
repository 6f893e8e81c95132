// The forwards' errors, and operands of huge sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "raggrad/cpu/chunks.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"
#include "raggrad/tensorflow_names.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::testing::Array;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::IsInvalid;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::StatusIs;
using ::testing::HasSubstr;

TEST(SparseSegmentErrors, NameTheFaultInTensorFlowsOrder) {
  const Array<float> data{{1, 2, 3, 4}, Shape{2, 2}};
  const TensorView scalar = TensorView::Scalar(data.values[0]);
  const Array<int32_t> ids{{0, 1, 1}}, matrix{{0, 1, 1}, Shape{3, 1}}, two{{0, 1}}, bad_ids{{0, 7, -3}},
      below_zero{{0, 0, -1}}, drops{{0, 1, 0}}, starts_below{{-2, 0, 0}}, gap{{0, 0, 5}};
  const auto mean = [](const TensorView& d, const TensorView& i, const TensorView& s) {
    return SparseSegmentMean(d, i, s).status();
  };
  EXPECT_THAT(mean(scalar, matrix, matrix),
              IsInvalid("SparseSegmentMean: indices should be a vector. [indices: expected rank 1, got shape [3,1]]"));
  EXPECT_THAT(mean(scalar, ids, matrix), IsInvalid("segment_ids should be a vector."));
  EXPECT_THAT(mean(scalar, ids, two),
              IsInvalid("segment_ids and indices should have same size. [segment_ids: expected 3"));
  EXPECT_THAT(mean(scalar, ids, below_zero),
              IsInvalid("Shape must be at least rank 1 [data: expected at least rank 1"));
  EXPECT_THAT(mean(data, bad_ids, below_zero),
              IsInvalid("segment ids must be >= 0 [segment_ids[2]: expected at least 0, got -1]"));
  EXPECT_THAT(mean(data, ids, drops),
              IsInvalid("segment ids are not increasing [segment_ids[2]: expected at least 1, got 0]"));
  EXPECT_THAT(mean(data, ids, starts_below), IsInvalid("Segment id -2 out of range [0, 1), possibly because "
                                                       "'segment_ids' input is not sorted. [segment_ids[0]]"));
  EXPECT_THAT(mean(data, bad_ids, gap), IsInvalid("Bad: indices[1] == 7 out of range [0, 2)"));
  EXPECT_THAT(mean(data, bad_ids, starts_below), IsInvalid("Segment id -2 out of range [0, 1)"));
}

TEST(SparseSegmentErrors, SegmentsAreCheckedOneAfterAnother) {
  const Array<float> data{{1, 2}, Shape{2, 1}};
  const auto sum = [&](std::vector<int64_t> indices, std::vector<int64_t> segment_ids) {
    return SparseSegmentSum(data, Array<int64_t>(std::move(indices)), Array<int64_t>(std::move(segment_ids))).status();
  };
  EXPECT_THAT(sum({9, 0, 0, 0}, {0, 0, 2, 1}), IsInvalid("Bad: indices[0] == 9"));
  EXPECT_THAT(sum({0, 0, 9, 0}, {0, 0, 2, 1}), IsInvalid("segment ids are not increasing [segment_ids[3]"));
  EXPECT_THAT(sum({0, 9, 0, 0}, {1, 1, 0, 1}), IsInvalid("segment ids are not increasing [segment_ids[2]"));
  EXPECT_THAT(sum({0, 0, 0, 9}, {0, 3, 4, 1}), IsInvalid("Segment id 3 out of range [0, 2)"));
  EXPECT_THAT(sum({-1, 0, 0, 0}, {-4, 0, 0, 1}), IsInvalid("Segment id -4 out of range [0, 2)"));
}

TEST(SparseSegmentErrors, NumSegmentsIsCheckedFirst) {
  const Array<float> data{{1, 2, 3, 4}, Shape{2, 2}};
  const Array<int32_t> ids{{0, 1, 1}}, matrix{{0, 1, 1}, Shape{3, 1}}, below_zero{{-3, -2, -1}}, bad_ids{{0, 7, -3}};
  const auto sum = [&](const TensorView& i, const TensorView& s, const TensorView& n) {
    return SparseSegmentSumWithNumSegments(data, i, s, n).status();
  };
  const int32_t minus = -1, none = 0, one = 1, two = 2;
  EXPECT_THAT(sum(matrix, ids, ids), IsInvalid("SparseSegmentSumWithNumSegments: num_segments should be a scalar, not "
                                               "shape [3] [num_segments: expected rank 0, got rank 1]"));
  EXPECT_THAT(sum(matrix, ids, TensorView::Scalar(minus)),
              IsInvalid("segment ids must be >= 0 [num_segments: expected at least 0, got -1]"));
  EXPECT_THAT(sum(matrix, ids, TensorView::Scalar(one)), IsInvalid("indices should be a vector."));
  EXPECT_THAT(sum(bad_ids, ids, TensorView::Scalar(one)),
              IsInvalid("segment ids must be < num_segments [segment_ids[2]: expected less than 1, got 1]"));
  EXPECT_THAT(sum(bad_ids, below_zero, TensorView::Scalar(none)),
              IsInvalid("segment ids must be >= 0 [segment_ids[2]"));
  EXPECT_THAT(sum(bad_ids, below_zero, TensorView::Scalar(two)), IsInvalid("Segment id -3 out of range [0, 2)"));
  // TensorFlow uses the low 32 bits.
  for (const int64_t too_many : {int64_t{1} << 31, (int64_t{1} << 40) + 4, INT64_MAX}) {
    EXPECT_THAT(sum(ids, ids, TensorView::Scalar(too_many)), IsInvalid("num_segments must be < 2^31"));
  }
  const int64_t negative = -(int64_t{1} << 40);
  EXPECT_THAT(sum(ids, ids, TensorView::Scalar(negative)), IsInvalid("segment ids must be >= 0"));
}

// Output rows are counted in the types of the ids, and where that wraps decides the error.
TEST(SparseSegmentErrors, HostileLastIds) {
  const Array<float> data{{1, 2}, Shape{2, 1}};
  const int32_t five = 5;
  const auto sum = [&]<class I, class S>(I, std::vector<S> segment_ids) {
    return SparseSegmentSum(data, Array<I>{{0, 1}}, Array<S>(std::move(segment_ids))).status();
  };
  const auto of_five = [&]<class I, class S>(I, std::vector<S> segment_ids) {
    return SparseSegmentSumWithNumSegments(data, Array<I>{{0, 1}}, Array<S>(std::move(segment_ids)),
                                           TensorView::Scalar(five))
        .status();
  };
  constexpr int32_t kMax = INT32_MAX;
  constexpr int64_t kTwoTo32 = int64_t{1} << 32;
  using Ids32 = std::vector<int32_t>;
  using Ids64 = std::vector<int64_t>;
  const auto too_large = IsInvalid("Last segment id must be < kintmax, got 2147483647 limit 2147483647");
  EXPECT_THAT(sum(int32_t{}, Ids32{0, kMax}), too_large);
  EXPECT_THAT(of_five(int32_t{}, Ids64{0, kMax}), too_large);
  EXPECT_THAT(sum(int64_t{}, Ids64{0, INT64_MAX}), IsInvalid("got 9223372036854775807 limit 9223372036854775807"));
  EXPECT_THAT(sum(int64_t{}, Ids32{0, kMax}), IsInvalid("segment ids must be >= 0"));
  EXPECT_THAT(of_five(int64_t{}, Ids32{0, kMax}), IsInvalid("Segment id 2147483647 out of range [0, 5)"));
  EXPECT_THAT(of_five(int64_t{}, Ids64{0, kMax}), IsInvalid("segment ids must be < num_segments"));
  EXPECT_THAT(sum(int32_t{}, Ids64{-kTwoTo32, -kTwoTo32}), IsInvalid("Segment id -4294967296 out of range [0, 1)"));
  EXPECT_THAT(sum(int64_t{}, Ids64{-kTwoTo32, -kTwoTo32}), IsInvalid("segment ids must be >= 0"));
  EXPECT_THAT(sum(int32_t{}, Ids64{0, -kTwoTo32}), IsInvalid("segment ids are not increasing"));
}

TEST(SparseSegmentErrors, TypesAreCheckedFirst) {
  const Array<float> data{{1, 2}, Shape{2, 1}};
  const Array<int32_t> ids{{0, 1}}, matrix{{0, 1}, Shape{1, 2}};
  EXPECT_THAT(SparseSegmentMean(ids, matrix, data),
              IsInvalid("data: expected one of half, bfloat16, float32, float64; got int32"));
  EXPECT_THAT(SparseSegmentSqrtN(ids, matrix, data), IsInvalid("data: expected one of half"));
  EXPECT_THAT(SparseSegmentSum(data, data, data), IsInvalid("indices: expected one of int32, int64; got float32"));
  EXPECT_THAT(SparseSegmentSum(data, matrix, data),
              IsInvalid("segment_ids: expected one of int32, int64; got float32"));
  EXPECT_THAT(SparseSegmentSumWithNumSegments(data, matrix, ids, data),
              IsInvalid("num_segments: expected one of int32, int64; got float32"));
  EXPECT_THAT(SparseSegmentSum(TensorView::Of<bool>(nullptr, Shape{0}), ids, ids), IsInvalid("uint64; got bool"));
  EXPECT_THAT(SparseSegmentSum(TensorView::Of<float>(nullptr, Shape{2}), ids, ids), IsInvalid("null pointer"));
}

TEST(SparseSegmentErrors, Devices) {
  const Array<float> data{{1, 2}, Shape{2, 1}};
  const Array<int32_t> ids{{0, 1}};
  const int32_t two = 2;
  TensorView data_elsewhere = data, ids_elsewhere = ids, two_elsewhere = TensorView::Scalar(two);
  data_elsewhere.device = ids_elsewhere.device = two_elsewhere.device = Device::Cuda();
  EXPECT_THAT(SparseSegmentSum(data_elsewhere, ids, ids), IsInvalid("different devices"));
  EXPECT_THAT(SparseSegmentSumWithNumSegments(data, ids, ids, two_elsewhere), IsInvalid("wrong device"));
  EXPECT_THAT(SparseSegmentSum(data_elsewhere, ids_elsewhere, ids_elsewhere),
              StatusIs(Code::kUnimplemented, HasSubstr("no kernels for this device")));
  Context ctx;
  ctx.isa = AvailableIsas().front() == Isa::kArmV8 ? Isa::kX86V4 : Isa::kArmV8;
  EXPECT_THAT(SparseSegmentSum(data, ids, ids, ctx), IsInvalid("not available"));
}

TEST(SparseSegmentErrors, TheFirstFaultOfManyThreadsIsReported) {
  const Array<float> data{std::vector<float>(8, 1.0F), Shape{8}};
  std::vector<int64_t> indices(100'000, 1), segment_ids(100'000);
  for (size_t i = 0; i < segment_ids.size(); ++i) segment_ids[i] = static_cast<int64_t>(i / 10);
  segment_ids[60'000] = 0;
  for (const size_t bad : {99'999U, 60'001U, 20'017U, 20'018U}) indices[bad] = -static_cast<int64_t>(bad);
  ForEachSetting([&](const Context& ctx) {
    EXPECT_THAT(SparseSegmentMean(data, Array<int64_t>(indices), Array<int64_t>(segment_ids), ctx),
                IsInvalid("Bad: indices[20017] == -20017 out of range [0, 8)"));
  });
  indices[20'017] = indices[20'018] = 0;
  ForEachSetting([&](const Context& ctx) {
    EXPECT_THAT(SparseSegmentMean(data, Array<int64_t>(indices), Array<int64_t>(segment_ids), ctx),
                IsInvalid("segment ids are not increasing [segment_ids[60000]: expected at least 5999, got 0]"));
  });
}

// The drop is where the ids of one worker end and those of the next begin, for any number of workers.
TEST(SparseSegmentErrors, ADropBetweenWorkersIsSeen) {
  const Array<float> data{{1.0F}, Shape{1}};
  constexpr int64_t kIds = 120'000;
  const Array<int32_t> indices{std::vector<int32_t>(kIds, 0)};
  for (int64_t workers = 2; workers <= 7; ++workers) {
    for (int64_t worker = 1; worker < workers; ++worker) {
      const int64_t drop = cpu::Chunks{kIds, workers}.begin(worker);
      std::vector<int64_t> ids(kIds, 0);
      for (int64_t i = 0; i < kIds; ++i) ids[static_cast<size_t>(i)] = i < drop ? 1 : 1 + (i - drop - 1) / 2;
      ids[static_cast<size_t>(drop)] = 0;
      const Array<int64_t> segment_ids{std::move(ids)};
      const std::string place = "[segment_ids[" + std::to_string(drop) + "]: expected at least 1, got 0]";
      ForEachSetting([&](const Context& ctx) {
        EXPECT_THAT(SparseSegmentSum(data, indices, segment_ids, ctx), IsInvalid(place.c_str()));
      });
    }
  }
}

TEST(SparseSegmentHuge, ManySegmentsOfNoWidth) {
  const TensorView data = TensorView::Of<float>(nullptr, Shape{int64_t{1} << 40, 0});
  const Array<int64_t> indices{{0, (int64_t{1} << 40) - 1, 5}}, segment_ids{{0, 3, int64_t{1} << 50}};
  const auto result = SparseSegmentMean(data, indices, segment_ids);
  ASSERT_THAT(result, IsOk());
  EXPECT_TRUE(HoldsBits(result->view(), Array<float>({}, Shape{(int64_t{1} << 50) + 1, 0})));
  const Array<int64_t> bad{{0, int64_t{1} << 40, 5}};
  EXPECT_THAT(SparseSegmentMean(data, bad, segment_ids), IsInvalid("Bad: indices[1] == 1099511627776"));
}

TEST(SparseSegmentHuge, TooLargeAnOutputIsReportedBeforeBadIds) {
  const Array<double> data{std::vector<double>(1024, 1.0), Shape{1, 1024}};
  const Array<int32_t> bad{{7}}, last{{INT32_MAX - 1}};
  EXPECT_THAT(SparseSegmentSum(data, bad, last), StatusIs(Code::kResourceExhausted, HasSubstr("[2147483647,1024]")));
  const int32_t many = INT32_MAX;
  EXPECT_THAT(SparseSegmentSumWithNumSegments(data, bad, last, TensorView::Scalar(many)),
              StatusIs(Code::kResourceExhausted, HasSubstr("OOM")));
}

TEST(SparseSegmentHuge, OverflowIsWordedAsTensorFlowDoes) {
  const auto last_id = [](std::initializer_list<int64_t> shape, int64_t last) {
    const std::vector<float> values(8);
    return SparseSegmentSum(TensorView::Of(values.data(), Shape(shape)), Array<int64_t>{{0}}, Array<int64_t>{{last}})
        .status();
  };
  constexpr int64_t kTwoTo62 = int64_t{1} << 62;
  EXPECT_THAT(last_id({1, 2}, kTwoTo62), IsInvalid("Encountered overflow when multiplying 4611686018427387905 with 2, "
                                                   "result: -9223372036854775806"));
  EXPECT_THAT(last_id({1, 4}, kTwoTo62), IsInvalid("multiplying 4611686018427387905 with 4, result: -1"));
  EXPECT_THAT(last_id({0, 1 << 16, 2}, kTwoTo62), IsInvalid("4611686018427387905 with 65536, result: -1"));
  EXPECT_THAT(
      last_id({0, int64_t{1} << 33, 2}, kTwoTo62),
      IsInvalid("Shape [4611686018427387905,8589934592,2] results in overflow when computing number of elements"));
  EXPECT_THAT(last_id({0, int64_t{1} << 31, 2}, 4294967292), IsInvalid("Shape [4294967293,2147483648,2] results in"));
  EXPECT_THAT(last_id({0, int64_t{1} << 31, 2}, 4294967293),
              IsInvalid("9223372032559808512 with 2, result: -8589934592"));
  EXPECT_THAT(last_id({0, 60000, 60000, 60000, 60000}, 65532),
              IsInvalid("Shape [65533,60000,60000,60000,60000] results"));
  EXPECT_THAT(last_id({0, 60000, 60000, 60000, 60000}, 65533),
              IsInvalid("multiplying 235922400000000 with 60000, result: -4291400073709551616"));
}

}  // namespace
}  // namespace raggrad
