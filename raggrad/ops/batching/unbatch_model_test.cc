// Random interleavings of Unbatch calls, good and bad, cancellations, deadlines and closes, against the serial model:
// after every step the same calls have ended, with the same results.
#include "raggrad/ops/batching/unbatch_model.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "raggrad/ops/batching/test_calls.h"
#include "raggrad/ops/batching/test_random.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

constexpr int64_t kStepsPerRound = 1000;
constexpr int64_t kKeys = 8;

class Round {
 public:
  explicit Round(uint64_t seed) : random_(seed) { context_.allocator = &allocator_; }

  void Play() {
    {
      BatchingRuntime runtime(context_);
      runtime_ = &runtime;
      for (int64_t step = 0; step < kStepsPerRound && !::testing::Test::HasFailure(); ++step) {
        SCOPED_TRACE("step " + std::to_string(step));
        const int64_t kind = random_.Below(100);
        if (kind < 80) {
          Call();
        } else if (kind < 98) {
          Cancel();
        } else if (kind < 99) {
          ExpectStatistics();
        } else {
          static_cast<void>(runtime.Close(ResourceKind::kUnbatch, {"", "u"}));
          ExpectEnds(model_.Close());
        }
      }
      runtime.CloseAll();
      ExpectEnds(model_.Close());
    }
    log_ = std::make_unique<CallLog<Tensor>>();
  }

 private:
  bool OneIn(int64_t n) { return random_.Below(n) == 0; }

  UnbatchOperands RandomOperands() {
    UnbatchOperands operands{random_.Below(kKeys), {}, {}, {}, {}};
    if (OneIn(2)) {  // an owner, which is mostly among its own
      if (!OneIn(8)) operands.keys.push_back(operands.id);
      for (int64_t more = random_.Below(4); more > 0; --more) {
        const int64_t key = random_.Below(kKeys);
        const bool listed = std::ranges::find(operands.keys, key) != operands.keys.end();
        if (!listed || OneIn(20)) operands.keys.push_back(key);
      }
    }
    std::vector<int64_t> index;
    int64_t total = 0;
    for (const int64_t key : operands.keys) {
      operands.rows.push_back(random_.Below(4));
      index.insert(index.end(), {key, 100, 100 + operands.rows.back()});  // only the difference counts
      total += operands.rows.back();
    }
    total += random_.Below(3) + static_cast<int64_t>(operands.keys.size());  // padding
    if (OneIn(20) && total > 0) total = random_.Below(total);                // maybe too few
    if (operands.keys.empty()) total = 0;
    operands.index = TensorOf(index, Shape{static_cast<int64_t>(operands.keys.size()), 3});
    std::vector<int32_t> values(static_cast<size_t>(total));
    std::iota(values.begin(), values.end(), static_cast<int32_t>(100 * made_.size()));
    operands.batch = TensorOf(values, Shape{total, 1});
    if (OneIn(30)) operands.batch = TensorOf(std::vector<float>(values.begin(), values.end()), Shape{total, 1});
    return operands;
  }

  void Call() {
    const auto number = static_cast<int>(made_.size());
    UnbatchOperands& operands = made_.emplace_back(RandomOperands());
    if (!OneIn(4)) operands.waiting.cancellation.emplace();
    const bool cancelled = operands.waiting.cancellation && OneIn(20);
    if (cancelled) operands.waiting.cancellation->Cancel();
    const bool no_time = !cancelled && OneIn(20);
    if (no_time) operands.waiting.timeout = WaitTime(0);
    UnbatchEnds ends = model_.Call(number, operands, cancelled);
    const bool waits = std::ranges::find(ends, number, &UnbatchEnd::call) == ends.end();
    if (!waits && OneIn(2)) {
      log_->Record(number)(runtime_->Unbatch(operands.call()));
    } else {
      runtime_->UnbatchAsync(operands.call(), log_->Record(number));
    }
    if (waits && no_time) {
      ASSERT_NE(log_->Await(number), nullptr);
      for (const UnbatchEnd& end : model_.EndWait(number, Code::kDeadlineExceeded)) ends.push_back(end);
    }
    ExpectEnds(ends);
  }

  void Cancel() {
    if (made_.empty()) return;
    const int64_t recent = std::min<int64_t>(static_cast<int64_t>(made_.size()), 12);
    const auto number = static_cast<int>(static_cast<int64_t>(made_.size()) - 1 - random_.Below(recent));
    const auto& token = made_[static_cast<size_t>(number)].waiting.cancellation;
    if (!token) return;
    token->Cancel();
    ExpectEnds(model_.EndWait(number, Code::kCancelled));
  }

  void ExpectStatistics() {
    const auto got = runtime_->Statistics(ResourceKind::kUnbatch, {"", "u"});
    if (!got.ok()) return;
    EXPECT_EQ(got->calls, got->succeeded + got->failed + got->waiters);
    EXPECT_EQ(got->pieces, static_cast<int64_t>(model_.stored()));
    EXPECT_EQ(got->waiters, static_cast<int64_t>(model_.waiting()));
  }

  void ExpectEnds(const UnbatchEnds& ends) {
    std::vector<int> expected;
    for (const UnbatchEnd& end : ends) {
      expected.push_back(end.call);
      const Result<Tensor>* const result = log_->Find(end.call);
      ASSERT_NE(result, nullptr) << "call " << end.call << " still waits";
      ASSERT_THAT(*result, StatusIs(end.code, ::testing::_)) << "call " << end.call;
      if (end.code != Code::kOk) continue;
      const Tensor& batch = made_[static_cast<size_t>(end.from)].batch;
      TensorView rows = batch.view();  // both types have 4 bytes
      rows.data = batch.As<char>() + 4 * end.begin;
      rows.shape = Shape{end.end - end.begin, 1};
      EXPECT_EQ(Difference((*result)->view(), rows), "") << "call " << end.call;
    }
    EXPECT_THAT(log_->TakeNew(), ::testing::UnorderedElementsAreArray(expected));
  }

  Generator random_;
  CountingAllocator allocator_;
  Context context_;
  BatchingRuntime* runtime_ = nullptr;
  UnbatchModel model_;
  std::deque<UnbatchOperands> made_;
  std::unique_ptr<CallLog<Tensor>> log_ = std::make_unique<CallLog<Tensor>>();
};

TEST(UnbatchModelTest, EveryStepAgrees) {
  const uint64_t seed = TestSeed();
  for (int64_t steps = 0; steps < ModelSteps() && !HasFailure(); steps += kStepsPerRound) {
    SCOPED_TRACE("round " + std::to_string(steps / kStepsPerRound));
    Round(seed + static_cast<uint64_t>(steps)).Play();
  }
}

}  // namespace
}  // namespace raggrad::testing
