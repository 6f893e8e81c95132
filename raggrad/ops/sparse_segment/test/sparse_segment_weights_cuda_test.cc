// Pooling with weights on a GPU: the CPU's bits in forwards, in gradients with kSequential, and in weights' gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "raggrad/ops/sparse_segment/indexed_slices.h"
#include "raggrad/ops/sparse_segment/segment_plan.h"
#include "raggrad/ops/sparse_segment/test/test_batch.h"
#include "raggrad/ops/sparse_segment/test/weighted_case.h"
#include "raggrad/testing/always_the_same.h"
#include "raggrad/testing/padded_on_device.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::sparse_segment {
namespace {

using ::raggrad::testing::ExpectAlwaysTheSame;
using ::raggrad::testing::ExpectEveryDeviceAllocationFailureIsReported;
using ::raggrad::testing::ExpectNoWait;
using ::raggrad::testing::ExpectSame;
using ::raggrad::testing::ExpectSamePadded;
using ::raggrad::testing::GpuTest;
using ::raggrad::testing::IsOk;

// The operands of a case, in host or in device memory.
struct Operands {
  TensorView data, grad, weights, indices, segment_ids;
  SegmentPooling pooling;
};

template <class Types>
class OnBoth {
 public:
  OnBoth(const WeightedCase<Types>& c, DType index, DType segment)
      : c_(c),
        index_(index),
        segment_(segment),
        data_(c.data),
        grad_(c.grad),
        weights_(c.weights),
        indices_(c.indices.As(index)),
        segment_ids_(c.segment_ids.As(segment)) {}

  // Calls expect(device, host) for each combiner and divisor.
  template <class F>
  void ForEachPooling(const F& expect) const {
    c_.ForEachPooling([&](const SegmentPooling& pooling) {
      const Operands host = {c_.data, c_.grad, c_.weights, c_.indices.As(index_), c_.segment_ids.As(segment_), pooling};
      const Operands device = {data_,    grad_,        weights_,
                               indices_, segment_ids_, {pooling.combiner, {weights_.view(), pooling.weights->divisor}}};
      expect(device, host);
    });
  }

 private:
  const WeightedCase<Types>& c_;
  DType index_, segment_;
  OnDevice data_, grad_, weights_, indices_, segment_ids_;
};

// Segments around every limit of the kernels: 4, 8, 16 and 64 ids, a warp, a block.
std::vector<int64_t> EveryLength() {
  std::vector<int64_t> lengths;
  for (int64_t length = 0; length < 40; ++length) lengths.push_back(length);
  for (const int64_t length : {63, 64, 65, 95, 96, 97, 511, 512, 1, 0, 700, 2}) lengths.push_back(length);
  return lengths;
}

// Reproducible sums are the CPU's in every form, as sequential ones are.
const Accumulation kWithTheCpusBits[] = {Accumulation::kSequential, Accumulation::kReproducible};

Context With(Accumulation accumulation) {
  Context ctx;
  ctx.accumulation = accumulation;
  return ctx;
}

template <class Types>
void ExpectForwards(const WeightedCase<Types>& c, DType index = DType::kInt32, DType segment = DType::kInt64) {
  OnBoth<Types>(c, index, segment).ForEachPooling([&](const Operands& device, const Operands& host) {
    const auto run = [](const Operands& on, const Context& ctx) {
      return SparseSegment(on.pooling, on.data, on.indices, on.segment_ids, ctx);
    };
    ExpectSame(run(device, {}), run(host, {}));
    const auto gradient = [](const Operands& on, const Context& ctx) {
      return SparseSegmentWeightsGrad(on.pooling, on.grad, on.data, on.indices, on.segment_ids, ctx);
    };
    for (const Accumulation accumulation : kWithTheCpusBits) {
      const Context ctx = With(accumulation);
      ExpectSame(run(device, ctx), run(host, ctx));
      ExpectSame(gradient(device, ctx), gradient(host, ctx));
    }
  });
}

template <class Types>
void ExpectGradients(const WeightedCase<Types>& c, DType index = DType::kInt32, DType segment = DType::kInt32) {
  using Padded = SparseSegmentGradV2PaddedOutput;
  const TensorView dim0 = TensorView::Scalar(c.table_rows);
  OnBoth<Types>(c, index, segment).ForEachPooling([&](const Operands& device, const Operands& host) {
    for (const Accumulation accumulation : kWithTheCpusBits) {
      const Context ctx = With(accumulation);
      const auto v2 = [&](const Operands& on) {
        return SparseSegmentGradV2(on.pooling, on.grad, on.indices, on.segment_ids, dim0, ctx);
      };
      ExpectSameRows(v2(device), v2(host));
      const auto v1 = [&](const Operands& on) {
        return SparseSegmentGrad(on.pooling, on.grad, on.indices, on.segment_ids, dim0, ctx);
      };
      ExpectSame(v1(device), v1(host));
      const auto padded = [&](const Operands& on) {
        return SparseSegmentGradV2Padded(on.pooling, on.grad, on.indices, on.segment_ids, dim0, c.table_rows, ctx);
      };
      ExpectSamePadded(padded(device), padded(host), {}, &Padded::output, &Padded::sorted_unique_indices);
    }
  });
}

template <class Types>
class SegmentWeightsCuda : public GpuTest {
 protected:
  using Case = WeightedCase<Types>;
};
TYPED_TEST_SUITE(SegmentWeightsCuda, WeightedTypes);

TYPED_TEST(SegmentWeightsCuda, EveryLengthHasTheCpusBits) {
  for (const int64_t width : {1, 4, 7, 16, 40}) {
    for (const bool hostile : {true, false}) {
      SCOPED_TRACE("width " + std::to_string(width));
      const auto c = TestFixture::Case::Random(static_cast<uint64_t>(width), EveryLength(), 50, width, hostile);
      ExpectForwards(c);
      ExpectGradients(c);
    }
  }
}

TYPED_TEST(SegmentWeightsCuda, EveryWidthHasTheCpusBits) {
  for (const int64_t width : {0, 2, 3, 5, 8, 12, 15, 17, 31, 33, 64, 100, 128, 129, 257, 300, 1023, 1028}) {
    SCOPED_TRACE("width " + std::to_string(width));
    const auto c = TestFixture::Case::Random(static_cast<uint64_t>(width), {3, 20, 1, 0, 17, 70}, 40, width);
    ExpectForwards(c, DType::kInt64, DType::kInt32);
    ExpectGradients(c, DType::kInt64, DType::kInt64);
  }
}

// Segment ids that do not ascend: divisors need a sort of the ids by segment. Some of the sorts have several tiles.
TYPED_TEST(SegmentWeightsCuda, SegmentIdsInAnyOrderHaveTheCpusBits) {
  for (const auto& [ids, segments] : {std::pair{10, 3}, {2'000, 1}, {2'000, 700}, {20'000, 5'000}}) {
    SCOPED_TRACE(std::to_string(ids) + " ids of " + std::to_string(segments) + " segments");
    std::vector<int64_t> lengths(static_cast<size_t>(segments), 0);
    lengths[0] = ids;
    auto c = TestFixture::Case::Random(4, lengths, 300, 5, /*hostile=*/false);
    c.ShuffleSegments(5);
    ExpectGradients(c, DType::kInt32, DType::kInt64);
  }
}

TYPED_TEST(SegmentWeightsCuda, HotRowsAndLongSegments) {
  const auto hot = TestFixture::Case::Random(6, Generator(6).RowLengths(900, 5), 2, 6);
  ExpectGradients(hot);
  ExpectForwards(TestFixture::Case::Random(7, {5'000, 3, 1'029}, 100, 12));
  ExpectGradients(TestFixture::Case::Random(7, {5'000, 3, 1'029}, 100, 12));
}

TYPED_TEST(SegmentWeightsCuda, PlansAndUpdatesHaveTheCpusBits) {
  using T = typename TypeParam::Value;
  for (const bool shuffled : {false, true}) {
    auto c = TestFixture::Case::Random(8, Generator(8).RowLengths(200, 8), 90, 6, /*hostile=*/false);
    if (shuffled) c.ShuffleSegments(9);
    const SegmentPlan::Sizes sizes = {.table_rows = c.table_rows, .num_segments = c.num_segments};
    OnBoth<TypeParam>(c, DType::kInt64, DType::kInt32)
        .ForEachPooling([&](const Operands& device, const Operands& host) {
          const auto device_plan = SegmentPlan::Make(device.indices, device.segment_ids, sizes);
          const auto host_plan = SegmentPlan::Make(host.indices, host.segment_ids, sizes);
          ASSERT_THAT(device_plan, IsOk());
          ExpectSameRows(SparseSegmentGradV2(device.pooling, device.grad, *device_plan, Sequential()),
                         SparseSegmentGradV2(host.pooling, host.grad, *host_plan));
          ExpectSame(SparseSegmentGrad(device.pooling, device.grad, *device_plan, Sequential()),
                     SparseSegmentGrad(host.pooling, host.grad, *host_plan));
          ExpectSame(SparseSegment(device.pooling, device.data, *device_plan),
                     SparseSegment(host.pooling, host.data, *host_plan));
          ExpectSame(SparseSegmentWeightsGrad(device.pooling, device.grad, device.data, *device_plan),
                     SparseSegmentWeightsGrad(host.pooling, host.grad, host.data, *host_plan));

          std::vector<T> want = c.data.values;
          const MutableTensorView host_table = MutableTensorView::Of(want.data(), c.data.shape);
          ASSERT_THAT(
              SparseSegmentGradApply(host.pooling, host.grad, host.indices, host.segment_ids, Sgd{0.5}, host_table),
              IsOk());
          const auto expect_table = [&](const auto& apply) {
            OnDevice table(c.data);
            ASSERT_THAT(
                apply(MutableTensorView{table.tensor().data(), c.data.view().dtype, c.data.shape, Device::Cuda()}),
                IsOk());
            ExpectSame(table.view(), host_table.view());
          };
          expect_table([&](const MutableTensorView& table) {
            return SparseSegmentGradApply(device.pooling, device.grad, device.indices, device.segment_ids, Sgd{0.5},
                                          table, Sequential());
          });
          expect_table([&](const MutableTensorView& table) {
            return SparseSegmentGradApply(device.pooling, device.grad, *device_plan, Sgd{0.5}, table, Sequential());
          });
        });
  }
}

TYPED_TEST(SegmentWeightsCuda, FastSumsAreAlwaysTheSame) {
  const auto c = TestFixture::Case::Random(10, Generator(10).RowLengths(3'000, 20), 700, 20, /*hostile=*/false);
  OnBoth<TypeParam>(c, DType::kInt32, DType::kInt32).ForEachPooling([&](const Operands& device, const Operands&) {
    ExpectAlwaysTheSame(
        [&](const Context& ctx) {
          return SparseSegmentGradV2(device.pooling, device.grad, device.indices, device.segment_ids,
                                     TensorView::Scalar(c.table_rows), ctx);
        },
        [](const SparseSegmentGradV2Output& result) {
          return std::vector{result.output.view(), result.sorted_unique_indices.view()};
        });
  });
}

using Floats = Weighted<float, float>;

// Whole numbers have exact sums, so kFast has the CPU's bits. The output is too large to be allocated beforehand.
TEST_F(GpuTest, WeightedFastSumsTakeEveryContributionOnce) {
  auto c = WeightedCase<Floats>::Random(11, Generator(11).RowLengths(9'000, 20), 100'000, 12, /*hostile=*/false);
  for (float& x : c.grad.values) x = std::round(4 * x);
  for (float& x : c.weights.values) x = std::round(4 * x);
  const TensorView dim0 = TensorView::Scalar(c.table_rows);
  const SegmentPooling on_host = c.Pooling(SegmentCombiner::kSum, WeightDivisor::kWeights);
  const OnDevice weights(c.weights), grad(c.grad), indices(c.indices.As(DType::kInt32)),
      segment_ids(c.segment_ids.As(DType::kInt32));
  ExpectSameRows(
      SparseSegmentGradV2({SegmentCombiner::kSum, {weights.view()}}, grad, indices, segment_ids, dim0),
      SparseSegmentGradV2(on_host, c.grad, c.indices.As(DType::kInt32), c.segment_ids.As(DType::kInt32), dim0));
}

TEST_F(GpuTest, WeightedErrorsAreTheCpus) {
  const auto good = WeightedCase<Floats>::Random(12, {3, 0, 40, 7}, 9, 2, /*hostile=*/false);
  const auto with = [&](const auto& change) {
    WeightedCase<Floats> c = good;
    change(c);
    c.indices = c.indices.wide;
    c.segment_ids = c.segment_ids.wide;
    ExpectForwards(c);
    ExpectGradients(c);
  };
  with([](auto& c) { c.indices.wide[17] = 9; });
  with([](auto& c) { c.indices.wide[17] = -1; });
  with([](auto& c) { c.segment_ids.wide[20] = 4; });
  with([](auto& c) { c.segment_ids.wide[20] = -5; });
  with([](auto& c) { c.segment_ids.wide.back() = 4; });
}

TEST_F(GpuTest, WeightedCallsReportEveryAllocationFailure) {
  auto c = WeightedCase<Weighted<BFloat16, float>>::Random(13, Generator(13).RowLengths(300, 9), 40, 6, false);
  for (const bool shuffled : {false, true}) {
    if (shuffled) c.ShuffleSegments(14);
    OnBoth<Weighted<BFloat16, float>>(c, DType::kInt32, DType::kInt32)
        .ForEachPooling([&](const Operands& on, const Operands&) {
          ExpectEveryDeviceAllocationFailureIsReported([&](const Context& ctx) {
            return SparseSegmentGradV2(on.pooling, on.grad, on.indices, on.segment_ids,
                                       TensorView::Scalar(c.table_rows), ctx)
                .status();
          });
          ExpectEveryDeviceAllocationFailureIsReported([&](const Context& ctx) {
            return SparseSegmentGradV2Padded(on.pooling, on.grad, on.indices, on.segment_ids,
                                             TensorView::Scalar(c.table_rows), 40, ctx)
                .status();
          });
          if (shuffled) return;
          ExpectEveryDeviceAllocationFailureIsReported([&](const Context& ctx) {
            return SparseSegment(on.pooling, on.data, on.indices, on.segment_ids, ctx).status();
          });
          ExpectEveryDeviceAllocationFailureIsReported([&](const Context& ctx) {
            return SparseSegmentWeightsGrad(on.pooling, on.grad, on.data, on.indices, on.segment_ids, ctx).status();
          });
        });
  }
}

}  // namespace
}  // namespace raggrad::sparse_segment
