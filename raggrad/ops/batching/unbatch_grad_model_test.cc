// Random interleavings of UnbatchGrad calls, good and bad, cancellations, deadlines and closes, against the serial
// model: after every step the same calls have ended, with the same results.
#include "raggrad/ops/batching/unbatch_grad_model.h"

#include <gmock/gmock.h>

#include <deque>
#include <optional>

#include "raggrad/ops/batching/test_calls.h"
#include "raggrad/ops/batching/test_random.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

constexpr int64_t kStepsPerRound = 1000;  // then everything is closed and looked at
constexpr int64_t kKeys = 8;              // few, so that calls meet often

// One runtime and its model.
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
          Close();
        }
      }
      Close();
    }
    log_ = std::make_unique<CallLog<Tensor>>();  // results go before the allocator is looked at
    for (const Made& made : made_) {
      if (made.keep_alive != nullptr) {
        EXPECT_EQ(made.keep_alive.use_count(), 2) << "a piece is still held by more than its operands";
      }
    }
  }

 private:
  struct Made {
    GradOperands operands;
    std::optional<Cancellation> token = {};
    std::shared_ptr<const void> keep_alive = nullptr;
  };

  bool OneIn(int64_t n) { return random_.Below(n) == 0; }

  std::shared_ptr<const Tensor> RandomPiece() {
    const int64_t rows = random_.Below(4);
    const auto first = static_cast<float>(1000 * made_.size());
    if (OneIn(60)) return FloatPiece(rows, 3, first);
    if (OneIn(60)) return std::make_shared<const Tensor>(TensorOf(std::vector<float>(4), Shape{1, 2, 2}));
    if (OneIn(60)) return std::make_shared<const Tensor>(TensorOf(std::vector<int32_t>(2, 7), Shape{1, 2}));
    if (OneIn(60)) return std::make_shared<const Tensor>(TensorOfBytes(DType::kQInt8, Shape{1, 2}, "ab"));
    if (OneIn(100)) return std::make_shared<const Tensor>(TensorOf(std::vector<float>(1), Shape{}));
    return FloatPiece(rows, 2, first);
  }

  std::vector<int64_t> RandomKeys(int64_t own) {
    std::vector<int64_t> keys;
    if (OneIn(2)) return keys;  // not an owner
    if (!OneIn(6)) keys.push_back(own);
    const int64_t others = random_.Below(4);
    for (int64_t i = 0; i < others || keys.empty(); ++i) {
      const int64_t key = random_.Below(kKeys);
      const bool listed = std::ranges::find(keys, key) != keys.end();
      if (!listed || OneIn(20)) keys.push_back(key);
    }
    std::swap(keys.front(), keys.back());
    return keys;
  }

  void Call() {
    const auto number = static_cast<int>(made_.size());
    const int64_t id = random_.Below(kKeys);
    Made& made = made_.emplace_back(Made{{id, RandomPiece(), RandomKeys(id)}});
    UnbatchGradCall& call = made.operands.call();
    if (OneIn(30)) made.operands.SetIndex(std::make_shared<const Tensor>(TensorOf<int64_t>({1, 2}, Shape{1, 2})));
    if (OneIn(50)) call.id.shape = Shape{1};
    if (OneIn(2)) made.keep_alive = call.grad.keep_alive = std::make_shared<int>(0);
    if (!OneIn(4)) call.waiting.cancellation = made.token.emplace();
    const bool cancelled = OneIn(20) && made.token;
    if (cancelled) made.token->Cancel();
    const bool no_time = !cancelled && OneIn(20);
    if (no_time) call.waiting.timeout = WaitTime(-random_.Below(2));

    ModelEnds ends = model_.Call(number, call, cancelled);
    const bool waits = ends.empty() || ends.back().call != number;
    if (!waits && OneIn(2)) {
      log_->Record(number)(runtime_->UnbatchGrad(call));
    } else {
      runtime_->UnbatchGradAsync(call, log_->Record(number));
    }
    if (waits && no_time) {
      ASSERT_NE(log_->Await(number), nullptr);
      for (ModelEnd& end : model_.EndWait(number, Code::kDeadlineExceeded)) ends.push_back(end);
    }
    ExpectEnds(ends);
  }

  // Also calls that have ended: then nothing happens.
  void Cancel() {
    if (made_.empty()) return;
    const size_t recent = std::min<size_t>(made_.size(), 12);
    const auto number =
        static_cast<int>(made_.size()) - 1 - static_cast<int>(random_.Below(static_cast<int64_t>(recent)));
    const Made& made = made_[static_cast<size_t>(number)];
    if (!made.token) return;
    made.token->Cancel();
    ExpectEnds(model_.EndWait(number, Code::kCancelled));
  }

  void Close() {
    const Status status = runtime_->Close(ResourceKind::kUnbatchGrad, {"", "r"});
    EXPECT_EQ(status.code(), model_.calls() > 0 ? Code::kOk : Code::kNotFound);
    ExpectEnds(model_.Close());
  }

  void ExpectStatistics() {
    const auto got = runtime_->Statistics(ResourceKind::kUnbatchGrad, {"", "r"});
    ASSERT_EQ(got.ok(), model_.calls() > 0);
    if (!got.ok()) return;
    EXPECT_EQ(got->calls, model_.calls());
    EXPECT_EQ(got->succeeded, model_.succeeded());
    EXPECT_EQ(got->failed, model_.failed());
    EXPECT_EQ(got->pieces, model_.pieces());
    EXPECT_EQ(got->waiters, model_.waiters());
    EXPECT_EQ(got->calls, got->succeeded + got->failed + got->waiters);
    EXPECT_EQ(got->bytes, model_.bytes());
  }

  void ExpectEnds(const ModelEnds& ends) {
    std::vector<int> expected;
    for (const ModelEnd& end : ends) {
      expected.push_back(end.call);
      const Result<Tensor>* const result = log_->Find(end.call);
      ASSERT_NE(result, nullptr) << "call " << end.call << " still waits";
      ASSERT_THAT(*result, StatusIs(end.code, ::testing::HasSubstr(end.text))) << "call " << end.call;
      if (end.code != Code::kOk) continue;
      std::vector<TensorView> pieces;
      for (const int call : end.joined) pieces.push_back(GradOf(call));
      EXPECT_EQ(DifferenceOrEmpty((*result)->view(), JoinedByHand(GradOf(end.call), pieces).view()), "");
    }
    EXPECT_THAT(log_->TakeNew(), ::testing::UnorderedElementsAreArray(expected));
  }

  const TensorView& GradOf(int call) const { return made_[static_cast<size_t>(call)].operands.grad().view(); }

  Generator random_;
  CountingAllocator allocator_;
  Context context_;
  BatchingRuntime* runtime_ = nullptr;
  UnbatchGradModel model_;
  std::deque<Made> made_;
  std::unique_ptr<CallLog<Tensor>> log_ = std::make_unique<CallLog<Tensor>>();
};

TEST(UnbatchGradModelTest, EveryStepAgrees) {
  const uint64_t seed = TestSeed();
  for (int64_t steps = 0; steps < ModelSteps() && !HasFailure(); steps += kStepsPerRound) {
    SCOPED_TRACE("round " + std::to_string(steps / kStepsPerRound));
    Round(seed + static_cast<uint64_t>(steps)).Play();
  }
}

}  // namespace
}  // namespace raggrad::testing
