#include "raggrad/ops/sparse_segment/indexed_slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "raggrad/ops/sparse_segment/test/rate_in_memory.h"
#include "raggrad/ops/sparse_segment/test/test_ids.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/combiners.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::sparse_segment::Ids;
using ::raggrad::sparse_segment::RateNumber;
using ::raggrad::sparse_segment::WithRate;
using ::raggrad::testing::Array;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::Generator;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::IsInvalid;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::kCombiners;

TEST(IndexedSlices, SlicesOfOneRowAreAddedInOrder) {
  const Array<float> values{{1e8F, 1, 2, 3, -1e8F, 5, 1, 7}, Shape{4, 2}};
  const Array<int64_t> indices{{4, 1, 4, 4}};
  const IndexedSlicesView slices = {values, indices, 6};
  const auto coalesced = Coalesce(slices);
  ASSERT_THAT(coalesced, IsOk());
  EXPECT_EQ(coalesced->table_rows, 6);
  EXPECT_TRUE(HoldsBits(coalesced->indices.view(), Array<int64_t>{{1, 4}}));
  EXPECT_TRUE(HoldsBits(coalesced->values.view(), Array<float>{{2, 3, 1, 13}, Shape{2, 2}}));
  const auto dense = ToDense(slices);
  ASSERT_THAT(dense, IsOk());
  EXPECT_TRUE(HoldsBits(dense->view(), Array<float>{{0, 0, 2, 3, 0, 0, 0, 0, 1, 13, 0, 0}, Shape{6, 2}}));
  EXPECT_TRUE(
      HoldsBits(ToDense(coalesced->view())->view(), Array<float>{{0, 0, 2, 3, 0, 0, 0, 0, 1, 13, 0, 0}, Shape{6, 2}}));
}

TEST(IndexedSlices, TablesOfUpTo2To32Rows) {
  constexpr int64_t kRows = int64_t{1} << 32;
  const Array<float> values{{1, 2, 30, 40}};
  const Array<int64_t> indices{{kRows - 1, 7, kRows - 1, int64_t{1} << 31}};
  const Array<int64_t> unique{{7, int64_t{1} << 31, kRows - 1}};
  const auto coalesced = Coalesce({values, indices, kRows});
  ASSERT_THAT(coalesced, IsOk());
  EXPECT_TRUE(HoldsBits(coalesced->indices.view(), unique));
  EXPECT_TRUE(HoldsBits(coalesced->values.view(), Array<float>{{2, 40, 31}}));
  const auto grad =
      SparseSegmentGradSlices(SegmentCombiner::kSum, values, indices, Array<int32_t>{{0, 1, 2, 3}}, kRows);
  ASSERT_THAT(grad, IsOk());
  EXPECT_EQ(grad->table_rows, kRows);
  EXPECT_TRUE(HoldsBits(grad->indices.view(), unique));
  EXPECT_TRUE(HoldsBits(grad->values.view(), Array<float>{{2, 40, 31}}));
  for (const int64_t rows : {kRows + 1, int64_t{-1}}) {
    EXPECT_THAT(Coalesce({values, indices, rows}), IsInvalid("[table_rows: expected 0 to 4294967296 rows, got "));
    EXPECT_THAT(SparseSegmentGradSlices(SegmentCombiner::kSum, values, indices, Array<int32_t>{{0, 1, 2, 3}}, rows),
                IsInvalid("SparseSegmentGradSlices: the number of rows is out of range [table_rows: expected 0 to "
                          "4294967296 rows, got "));
  }
}

TEST(IndexedSlices, NoSlices) {
  const IndexedSlicesView slices = {TensorView::Of<float>(nullptr, Shape{0, 2}),
                                    TensorView::Of<int32_t>(nullptr, Shape{0}), 2};
  EXPECT_TRUE(HoldsBits(ToDense(slices)->view(), Array<float>{{0, 0, 0, 0}, Shape{2, 2}}));
  EXPECT_EQ(Coalesce(slices)->values.shape(), (Shape{0, 2}));
  std::vector<float> table = {1, 2, 3, 4};
  EXPECT_THAT(ApplyRows(slices, Sgd{1.0}, MutableTensorView::Of(table.data(), Shape{2, 2})), IsOk());
  EXPECT_EQ(table, (std::vector<float>{1, 2, 3, 4}));
}

TEST(IndexedSlices, UpdatesFollowTheFormulas) {
  const Array<double> values{{3, -4, 1, 0}, Shape{2, 2}};
  const Array<int32_t> indices{{2, 0}};
  const IndexedSlicesView slices = {values, indices, 3};
  const std::vector<double> start = {1, 2, 3, 4, 5, 6};
  const double g[6] = {1, 0, 0, 0, 3, -4};
  const auto view = [](std::vector<double>& v) { return MutableTensorView::Of(v.data(), Shape{3, 2}); };

  std::vector<double> table = start;
  ASSERT_THAT(ApplyRows(slices, Sgd{0.5}, view(table)), IsOk());
  EXPECT_EQ(table, (std::vector<double>{0.5, 2, 3, 4, 3.5, 8}));

  table = start;
  std::vector<double> sums(6, 0.25);
  ASSERT_THAT(ApplyRows(slices, Adagrad{.learning_rate = 0.5, .epsilon = 1e-3, .accumulator = view(sums)}, view(table)),
              IsOk());
  for (size_t i = 0; i < 6; ++i) {
    const bool touched = i / 2 != 1;
    const double sum = touched ? 0.25 + g[i] * g[i] : 0.25;
    EXPECT_EQ(sums[i], sum);
    EXPECT_EQ(table[i], touched ? start[i] - 0.5 * g[i] / (std::sqrt(sum) + 1e-3) : start[i]);
  }

  table = start;
  std::vector<double> m(6, 0.125), v(6, 2);
  const Adam adam = {
      .learning_rate = 0.5, .beta1 = 0.75, .beta2 = 0.5, .epsilon = 1e-3, .step = 3, .m = view(m), .v = view(v)};
  ASSERT_THAT(ApplyRows(slices, adam, view(table)), IsOk());
  const double rate = 0.5 * (std::sqrt(1 - 0.125) / (1 - 0.421875));
  for (size_t i = 0; i < 6; ++i) {
    const bool touched = i / 2 != 1;
    const double new_m = touched ? 0.125 + (g[i] - 0.125) * 0.25 : 0.125;
    const double new_v = touched ? 2 + (g[i] * g[i] - 2) * 0.5 : 2;
    EXPECT_EQ(m[i], new_m);
    EXPECT_EQ(v[i], new_v);
    EXPECT_EQ(table[i], touched ? start[i] - new_m * rate / (std::sqrt(new_v) + 1e-3) : start[i]);
  }

  table = start;
  std::vector<double> row_sums(3, 0.25);
  const MutableTensorView one_per_row = MutableTensorView::Of(row_sums.data(), Shape{3});
  const RowwiseAdagrad rowwise = {.learning_rate = 0.5, .epsilon = 1e-3, .accumulator = one_per_row};
  ASSERT_THAT(ApplyRows(slices, rowwise, view(table)), IsOk());
  EXPECT_EQ(row_sums, (std::vector<double>{0.75, 0.25, 12.75}));
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(table[i], i / 2 == 1 ? start[i] : start[i] - 0.5 / (std::sqrt(row_sums[i / 2]) + 1e-3) * g[i]);
  }
}

// The order in which row_update.h adds squares, for rows that do and do not fill the lanes.
TEST(IndexedSlices, SquaresOfARowAreAddedByLanes) {
  for (const int64_t width : {1, 31, 32, 33, 64, 65, 200}) {
    const Array<float> values{Generator(static_cast<uint64_t>(width)).Values<float>(width), Shape{1, width}};
    float lanes[32] = {};
    for (int64_t c = 0; c < width; ++c) {
      const float g = values.values[static_cast<size_t>(c)];
      lanes[c % 32] += g * g;
    }
    for (int half = 16; half > 0; half /= 2) {
      for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    float sum = 0.5F;
    std::vector<float> table(static_cast<size_t>(width), 1.0F);
    const RowwiseAdagrad update = {.learning_rate = 1, .accumulator = MutableTensorView::Of(&sum, Shape{1})};
    ASSERT_THAT(ApplyRows({values, Array<int32_t>{{0}}, 1}, update, MutableTensorView::Of(table.data(), values.shape)),
                IsOk());
    EXPECT_EQ(sum, 0.5F + lanes[0] / static_cast<float>(width)) << width;
  }
}

// A table with optimizer states, and one update of every kind.
template <class T, class A>
struct Trainee {
  Array<T> table;
  Array<A> state1;
  Array<A> state2;

  Trainee(int64_t rows, int64_t width)
      : table{Generator(11).HostileValues<T>(rows * width), Shape{rows, width}},
        state1{std::vector<A>(static_cast<size_t>(rows * width), A{0.5}), Shape{rows, width}},
        state2{state1} {}

  std::vector<RowUpdate> Updates() {
    const auto view = [](Array<A>& a) { return MutableTensorView::Of(a.values.data(), a.shape); };
    const MutableTensorView sums = MutableTensorView::Of(state1.values.data(), Shape{state1.shape[0]});
    return {Sgd{0.1}, Adagrad{.learning_rate = 0.1, .accumulator = view(state1)},
            Adam{.learning_rate = 0.1, .step = 2, .m = view(state1), .v = view(state2)},
            RowwiseAdagrad{.learning_rate = 0.1, .accumulator = sums}};
  }
  MutableTensorView view() { return MutableTensorView::Of(table.values.data(), table.shape); }
};

template <class T, class A>
::testing::AssertionResult Same(const Trainee<T, A>& got, const Trainee<T, A>& want) {
  if (auto same = HoldsBits(got.table, want.table); !same) return same << " in the table";
  if (auto same = HoldsBits(got.state1, want.state1); !same) return same << " in the first state";
  return HoldsBits(got.state2, want.state2);
}

template <class G, class W>
struct Pair {
  using Grad = G;
  using Table = W;
};
template <class P>
class FusedTyped : public ::testing::Test {};
using Pairs = ::testing::Types<Pair<float, float>, Pair<float, BFloat16>, Pair<float, Half>, Pair<BFloat16, BFloat16>,
                               Pair<BFloat16, float>, Pair<Half, Half>, Pair<Half, BFloat16>, Pair<double, double>>;
TYPED_TEST_SUITE(FusedTyped, Pairs);

TYPED_TEST(FusedTyped, ARateInMemoryHasTheBitsOfANumber) {
  using G = typename TypeParam::Grad;
  using A = std::conditional_t<std::is_same_v<G, double>, double, float>;
  const Array<G> grad{Generator(5).HostileValues<G>(40 * 19), Shape{40, 19}};
  const Array<int64_t> rows{Generator(6).ZipfIds<int64_t>(40, 30)};
  for (size_t update = 0; update < 4; ++update) {
    Trainee<typename TypeParam::Table, A> want(30, 19), got(30, 19);
    ASSERT_THAT(ApplyRows({grad, rows, 30}, want.Updates()[update], want.view()), IsOk());
    const RowUpdate rule = got.Updates()[update];
    const double rate = RateNumber(rule);
    ASSERT_THAT(ApplyRows({grad, rows, 30}, WithRate(rule, TensorView::Scalar(rate)), got.view()), IsOk());
    EXPECT_TRUE(Same(got, want)) << update;
  }
}

TEST(IndexedSlices, RatesAreOneNumberOfTheirOwn) {
  Trainee<double, double> trainee(2, 3);
  const Trainee<double, double> before(2, 3);
  const Array<double> grad{std::vector<double>(6, 1.0), Shape{2, 3}};
  const Array<int32_t> rows{{0, 1}};
  const auto expect_error = [&](const TensorView& rate, const std::string& text) {
    for (const RowUpdate& rule : trainee.Updates()) {
      EXPECT_THAT(ApplyRows({grad, rows, 2}, WithRate(rule, rate), trainee.view()), IsInvalid(text));
    }
  };
  expect_error(Array<float>{{1}}, "rate");
  expect_error(Array<double>{{1, 2}}, "[rate: expected 1 element, got shape [2]]");
  expect_error(Array<double>{{}}, "[rate: expected 1 element, got shape [0]]");
  expect_error(TensorView::Scalar(trainee.table.values[1]), "got memory of rate");
  EXPECT_TRUE(Same(trainee, before));
}

TEST(IndexedSlices, TheRateOfAdam) {
  const Adam adam = {.learning_rate = 0.5, .beta1 = 0.5, .beta2 = 0.75, .step = 2};
  EXPECT_EQ(RateOf(adam), 0.5 * (std::sqrt(1 - 0.75 * 0.75) / 0.75));
}

// The fused form, with and without a plan, gives the bits of the gradient followed by the update.
TYPED_TEST(FusedTyped, SameBitsAsTwoSteps) {
  using G = typename TypeParam::Grad;
  using W = typename TypeParam::Table;
  using A = std::conditional_t<std::is_same_v<G, double>, double, float>;
  struct Size {
    int64_t n, rows, segments, width;
  };
  for (const Size& size : {Size{5, 4, 2, 3}, Size{900, 100, 40, 65}, Size{60'000, 300, 900, 19}}) {
    const int64_t n = size.n, rows = size.rows, segments = size.segments, width = size.width;
    Generator random(static_cast<uint64_t>(n));
    const Ids indices = random.ZipfIds<int64_t>(n, rows);
    const Ids segment_ids = random.UniformIds<int64_t>(n, segments);
    const Array<G> grad{random.HostileValues<G>(segments * width), Shape{segments, width}};
    const TensorView index = indices.As(DType::kInt32);
    const TensorView segment = segment_ids.As(DType::kInt64);
    const int32_t dim0 = static_cast<int32_t>(rows);
    for (const SegmentCombiner combiner : kCombiners) {
      const auto slices = SparseSegmentGradV2(combiner, grad, index, segment, TensorView::Scalar(dim0));
      const auto plan = SegmentPlan::Make(index, segment, {rows, segments});
      for (size_t update = 0; update < 4; ++update) {
        Trainee<W, A> want(rows, width);
        ASSERT_THAT(ApplyRows({slices->output.view(), slices->sorted_unique_indices.view(), rows},
                              want.Updates()[update], want.view()),
                    IsOk());
        ForEachSetting([&](const Context& ctx) {
          Trainee<W, A> fused(rows, width), planned(rows, width), two_steps(rows, width);
          ASSERT_THAT(
              SparseSegmentGradApply(combiner, grad, index, segment, fused.Updates()[update], fused.view(), ctx),
              IsOk());
          EXPECT_TRUE(Same(fused, want));
          ASSERT_THAT(SparseSegmentGradApply(combiner, grad, *plan, planned.Updates()[update], planned.view(), ctx),
                      IsOk());
          EXPECT_TRUE(Same(planned, want));
          ASSERT_THAT(ApplyRows({slices->output.view(), slices->sorted_unique_indices.view(), rows},
                                two_steps.Updates()[update], two_steps.view(), ctx),
                      IsOk());
          EXPECT_TRUE(Same(two_steps, want));
        });
      }
    }
  }
}

TEST(ApplyRows, RepeatedRowsAreOneUpdate) {
  const Array<float> values{{1, 2, 4}, Shape{3, 1}};
  const Array<int32_t> indices{{1, 0, 1}};
  std::vector<float> table = {10, 20}, sums = {0, 0};
  const Adagrad adagrad = {
      .learning_rate = 1, .epsilon = 0, .accumulator = MutableTensorView::Of(sums.data(), Shape{2, 1})};
  ASSERT_THAT(ApplyRows({values, indices, 2}, adagrad, MutableTensorView::Of(table.data(), Shape{2, 1})), IsOk());
  EXPECT_EQ(sums, (std::vector<float>{4, 25}));
  EXPECT_EQ(table, (std::vector<float>{9, 19}));
}

class UpdateErrors : public ::testing::Test {
 protected:
  MutableTensorView Table(Shape shape = {3, 1}) { return MutableTensorView::Of(table_.data(), std::move(shape)); }
  Status Slices(const RowUpdate& update, const MutableTensorView& table) {
    return ApplyRows({values_, indices_, table.shape.rank() > 0 ? table.shape[0] : 0}, update, table);
  }
  Status Fused(const RowUpdate& update, const MutableTensorView& table) {
    return SparseSegmentGradApply(SegmentCombiner::kMean, values_, indices_, segment_ids_, update, table);
  }
  // Expects that both forms refuse, and that nothing has changed.
  void ExpectRefused(const RowUpdate& update, const MutableTensorView& table, const char* text) {
    EXPECT_THAT(Slices(update, table), IsInvalid(text));
    EXPECT_THAT(Fused(update, table), IsInvalid(text));
    EXPECT_EQ(table_, (std::vector<float>{1, 2, 3}));
  }

  Array<float> values_{{1, 2}, Shape{2, 1}};
  Array<int32_t> indices_{{0, 1}}, segment_ids_{{0, 1}};
  std::vector<float> table_ = {1, 2, 3}, state_ = {0, 0, 0}, state2_ = {0, 0, 0};
};

TEST_F(UpdateErrors, WrongArrays) {
  ExpectRefused(Sgd{1}, Table({3}), "[table: expected [3,1], got [3]]");
  ExpectRefused(Sgd{1}, Table({1, 3}), "[table: expected [1,1], got [1,3]]");
  std::vector<double> wide(3);
  ExpectRefused(Sgd{1}, MutableTensorView::Of(wide.data(), Shape{3, 1}), "table has dtype float64");
  ExpectRefused(Sgd{1}, MutableTensorView::Of<float>(nullptr, Shape{3, 1}), "[table: expected 3 elements, got a null");
  ExpectRefused(Adagrad{1}, Table(), "accumulator has dtype invalid");
  ExpectRefused(Adagrad{.learning_rate = 1, .accumulator = MutableTensorView::Of(wide.data(), Shape{3, 1})}, Table(),
                "accumulator has dtype float64");
  ExpectRefused(Adagrad{.learning_rate = 1, .accumulator = MutableTensorView::Of(state_.data(), Shape{2, 1})}, Table(),
                "[accumulator: expected [3,1], got [2,1]]");
  ExpectRefused(RowwiseAdagrad{.learning_rate = 1, .accumulator = MutableTensorView::Of(state_.data(), Shape{3, 1})},
                Table(), "[accumulator: expected [3], got [3,1]]");
  const auto beyond = [](std::vector<float>& floats) {
    return MutableTensorView{reinterpret_cast<char*>(floats.data()) + 2, DType::kFloat32, Shape{3, 1}};
  };
  ExpectRefused(Sgd{1}, beyond(table_), "not aligned [table: expected an address that is a multiple of 4");
  ExpectRefused(Adagrad{.learning_rate = 1, .accumulator = beyond(state_)}, Table(), "not aligned [accumulator");
  EXPECT_THAT(Fused(Sgd{1}, Table({})), IsInvalid("[table: expected at least rank 1, got a scalar]"));
}

TEST_F(UpdateErrors, OverlappingArrays) {
  ExpectRefused(Sgd{1}, MutableTensorView::Of(values_.values.data(), Shape{2, 1}),
                "[table: expected memory of its own");
  ExpectRefused(Adagrad{.learning_rate = 1, .accumulator = Table()}, Table(),
                "[accumulator: expected memory of its own, got memory of table]");
  const MutableTensorView state = MutableTensorView::Of(state_.data(), Shape{3, 1});
  ExpectRefused(Adam{.learning_rate = 1, .m = state, .v = state}, Table(), "[v: expected memory of its own");
  const TensorView weights = TensorView::Of(table_.data() + 1, Shape{2});
  EXPECT_THAT(
      SparseSegmentGradApply({SegmentCombiner::kSum, {weights}}, values_, indices_, segment_ids_, Sgd{1}, Table()),
      IsInvalid("[table: expected memory of its own, got memory of weights]"));
}

TEST_F(UpdateErrors, HyperparametersOutOfRange) {
  const auto adam = [&](double beta1, double beta2, int64_t step) {
    return Adam{.learning_rate = 1,
                .beta1 = beta1,
                .beta2 = beta2,
                .step = step,
                .m = MutableTensorView::Of(state_.data(), Shape{3, 1}),
                .v = MutableTensorView::Of(state2_.data(), Shape{3, 1})};
  };
  ExpectRefused(adam(0.9, 0.9, 0), Table(), "[step: expected at least 1, got 0]");
  ExpectRefused(adam(1.0, 0.9, 1), Table(), "[beta1: expected 0 <= beta1 < 1]");
  ExpectRefused(adam(0.9, -0.1, 1), Table(), "[beta2: expected 0 <= beta2 < 1]");
  ExpectRefused(adam(NAN, 0.9, 1), Table(), "[beta1:");
}

TEST_F(UpdateErrors, BadIdsChangeNothing) {
  indices_.values[1] = 3;
  ExpectRefused(Sgd{1}, Table(), "Index 3 out of range [0, 3). [indices[1]]");
  indices_.values[1] = 1;
  segment_ids_.values[0] = -1;
  EXPECT_THAT(Fused(Sgd{1}, Table()), IsInvalid("Segment id -1 out of range [0, 2). [segment_ids[0]]"));
  segment_ids_.values.pop_back();
  segment_ids_.shape = Shape{1};
  EXPECT_THAT(Fused(Sgd{1}, Table()), IsInvalid("should have same size"));
  EXPECT_EQ(table_, (std::vector<float>{1, 2, 3}));
}

TEST(IndexedSlicesErrors, ShapesAndTypes) {
  const Array<float> values{{1, 2}, Shape{2, 1}};
  const Array<int32_t> indices{{0, 1}};
  EXPECT_THAT(ToDense({values, Array<int32_t>{{0}}, 3}), IsInvalid("[values: expected 1 rows as indices has elements"));
  EXPECT_THAT(Coalesce({Array<float>{{1}, Shape{}}, indices, 3}), IsInvalid("[values: expected at least rank 1"));
  EXPECT_THAT(Coalesce({Array<int32_t>{{1, 2}}, indices, 3}), IsInvalid("values has dtype int32"));
  EXPECT_THAT(Coalesce({values, Array<float>{{1, 2}}, 3}), IsInvalid("indices has dtype float32"));
  EXPECT_THAT(Coalesce({values, indices, -1}), IsInvalid("[table_rows: expected 0 to 4294967296 rows, got -1]"));
  EXPECT_THAT(ToDense({values, indices, 1}), IsInvalid("Index 1 out of range [0, 1). [indices[1]]"));
  EXPECT_THAT(ToDense({TensorView::Of<float>(nullptr, Shape{0, int64_t{1} << 40}),
                       TensorView::Of<int32_t>(nullptr, Shape{0}), INT32_MAX}),
              IsInvalid("results in overflow"));
}

TEST(IndexedSlicesErrors, EveryAllocationFailureIsReported) {
  const int64_t n = 30'000;
  Generator random(1);
  const Array<float> values{random.HostileValues<float>(n), Shape{n, 1}};
  const Array<int32_t> indices{random.UniformIds<int32_t>(n, 1000)};
  const IndexedSlicesView slices = {values, indices, 1000};
  ExpectEveryAllocationFailureIsReported({}, [&](const Context& ctx) { return ToDense(slices, ctx).status(); });
  ExpectEveryAllocationFailureIsReported({}, [&](const Context& ctx) { return Coalesce(slices, ctx).status(); });
  std::vector<float> table(1000, 1.0F);
  ExpectEveryAllocationFailureIsReported({}, [&](const Context& ctx) {
    const std::vector<float> before = table;
    Status status = ApplyRows(slices, Sgd{0.1}, MutableTensorView::Of(table.data(), Shape{1000, 1}), ctx);
    EXPECT_TRUE(status.ok() || std::memcmp(before.data(), table.data(), 4000) == 0);
    return status;
  });
}

}  // namespace
}  // namespace raggrad
