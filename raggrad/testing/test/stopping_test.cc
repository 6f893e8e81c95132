// Stops calls at their n-th task, for every n: the result is whole, or CANCELLED. A phase must not read what the one
// before has skipped; sanitizers would tell.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "raggrad/cpu/chunks.h"
#include "raggrad/raggrad.h"

namespace raggrad {
namespace {

// Runs tasks one after the other, cut for seven workers, and is stopped before task `last`.
class StopsAt final : public Executor {
 public:
  explicit StopsAt(int64_t last) : left_(last) {}
  int num_workers() const noexcept override { return 7; }
  void Run(int64_t tasks, TaskRef body) noexcept override {
    for (int64_t task = 0; task < tasks; ++task, --left_) body(task);
  }
  bool stopped() const noexcept override { return left_ <= 0; }

 private:
  int64_t left_;
};

constexpr int64_t kIds = 1 << 17;  // seven chunks of the largest grain
constexpr int32_t kTableRows = 40'000;
constexpr int64_t kSegments = 50'000;

struct Ids {
  Ids()
      : rows(kIds),
        segments(kIds),
        pairs(2 * kIds),
        floats(static_cast<size_t>(std::max<int64_t>(kSegments, kTableRows)) * 4, 1) {
    for (int64_t i = 0; i < kIds; ++i) {
      rows[static_cast<size_t>(i)] = i * 7919 % kTableRows;
      segments[static_cast<size_t>(i)] = i * kSegments / kIds;
      pairs[static_cast<size_t>(2 * i)] = i;
      pairs[static_cast<size_t>(2 * i + 1)] = i % 3;
    }
    std::iota(floats.begin(), floats.end(), 0.0F);
  }
  TensorView indices() const { return TensorView::Of(rows.data(), {kIds}); }
  TensorView segment_ids() const { return TensorView::Of(segments.data(), {kIds}); }
  TensorView table() const { return TensorView::Of(floats.data(), {kTableRows, 4}); }
  TensorView grad() const { return TensorView::Of(floats.data(), {kSegments, 4}); }

  std::vector<int64_t> rows, segments, pairs;
  std::vector<float> floats;
};

std::string Bits(const Tensor& tensor) { return {static_cast<const char*>(tensor.view().data), tensor.bytes()}; }

using Call = std::function<Result<std::string>(const Context&)>;

// Stops the call at task 0, 1, 2, ... until it ends before the stop.
void ExpectWholeOrCancelled(const Call& call) {
  const Result<std::string> expected = call({});
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  for (int64_t last = 0;; ++last) {
    StopsAt executor(last);
    Context ctx;
    ctx.executor = &executor;
    const Result<std::string> got = call(ctx);
    if (got.ok()) {
      EXPECT_EQ(*got, *expected);
      if (!executor.stopped()) {
        EXPECT_GT(last, 6);  // the work really was cut
        return;
      }
    } else {
      ASSERT_EQ(got.status().code(), Code::kCancelled) << got.status().message();
    }
  }
}

TEST(StoppingTest, Forward) {
  const Ids ids;
  ExpectWholeOrCancelled([&](const Context& ctx) -> Result<std::string> {
    const auto out = SparseSegment(SegmentCombiner::kMean, ids.table(), ids.indices(), ids.segment_ids(), ctx);
    if (!out.ok()) return out.status();
    return Bits(*out);
  });
}

TEST(StoppingTest, Gradients) {
  const Ids ids;
  ExpectWholeOrCancelled([&](const Context& ctx) -> Result<std::string> {
    const auto out = SparseSegmentGradV2(SegmentCombiner::kMean, ids.grad(), ids.indices(), ids.segment_ids(),
                                         TensorView::Scalar(kTableRows), ctx);
    if (!out.ok()) return out.status();
    return Bits(out->output) + Bits(out->sorted_unique_indices);
  });
  ExpectWholeOrCancelled([&](const Context& ctx) -> Result<std::string> {
    const auto out = SparseSegmentGrad(SegmentCombiner::kSqrtN, ids.grad(), ids.indices(), ids.segment_ids(),
                                       TensorView::Scalar(kTableRows), ctx);
    if (!out.ok()) return out.status();
    return Bits(*out);
  });
}

TEST(StoppingTest, Plan) {
  const Ids ids;
  ExpectWholeOrCancelled([&](const Context& ctx) -> Result<std::string> {
    const auto plan = SegmentPlan::Make(ids.indices(), ids.segment_ids(), {kTableRows, kSegments}, ctx);
    if (!plan.ok()) return plan.status();
    return std::to_string(plan->num_unique());
  });
}

// The table is whole or untouched.
TEST(StoppingTest, UpdateInPlace) {
  const Ids ids;
  const auto update = [&](std::vector<float>& table, const Context& ctx) {
    const MutableTensorView view{table.data(), DType::kFloat32, Shape{kTableRows, 4}, Device::Cpu()};
    return SparseSegmentGradApply(SegmentCombiner::kSum, ids.grad(), ids.indices(), ids.segment_ids(), Sgd{0.5}, view,
                                  ctx);
  };
  const std::vector<float> before(static_cast<size_t>(kTableRows) * 4, 1);
  std::vector<float> after = before;
  ASSERT_TRUE(update(after, {}).ok());
  for (int64_t last = 0, stopped = 1; stopped != 0; ++last) {
    StopsAt executor(last);
    Context ctx;
    ctx.executor = &executor;
    std::vector<float> table = before;
    const Status status = update(table, ctx);
    EXPECT_TRUE(table == (status.ok() ? after : before));
    stopped = executor.stopped() ? 1 : 0;
  }
}

TEST(StoppingTest, Slice) {
  const Ids ids;
  const std::vector<float> values(static_cast<size_t>(kIds), 2);
  const int64_t shape[] = {kIds, 3}, start[] = {5, 0}, size[] = {kIds - 9, 2};
  const TensorView indices = TensorView::Of(ids.pairs.data(), {kIds, 2});
  const TensorView begin = TensorView::Of(start, {2});
  ExpectWholeOrCancelled([&](const Context& ctx) -> Result<std::string> {
    const auto out = SparseSlice(indices, TensorView::Of(values.data(), {kIds}), TensorView::Of(shape, {2}), begin,
                                 TensorView::Of(size, {2}), ctx);
    if (!out.ok()) return out.status();
    return Bits(out->output_indices) + Bits(out->output_values);
  });
  const auto sliced = SparseSlice(indices, TensorView::Of(values.data(), {kIds}), TensorView::Of(shape, {2}), begin,
                                  TensorView::Of(size, {2}));
  ASSERT_TRUE(sliced.ok());
  ExpectWholeOrCancelled([&](const Context& ctx) -> Result<std::string> {
    const auto out = SparseSliceGrad(sliced->output_values.view(), indices, begin, sliced->output_indices.view(), ctx);
    if (!out.ok()) return out.status();
    return Bits(*out);
  });
}

TEST(StoppingTest, NoChunkIsLong) {
  for (const int workers : {1, 2, 7}) {
    const auto pool = MakeThreadPool(workers);
    const int64_t grain = 100, size = 1'000'000'000;
    const cpu::Chunks chunks = cpu::SplitEvenly(*pool, size, grain);
    EXPECT_LE(size / chunks.count, 2 * grain * cpu::kMostGrains);
  }
}

}  // namespace
}  // namespace raggrad
