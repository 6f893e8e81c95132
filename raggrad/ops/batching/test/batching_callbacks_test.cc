// Callbacks that sleep or call the runtime again. They delay no deadline.
#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>

#include "raggrad/ops/batching/test/waiting_calls.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

using ::testing::_;

// Holds callbacks until it is opened, at the latest when the test ends.
class Gate {
 public:
  ~Gate() { Open(); }
  void Open() {
    if (!std::exchange(is_open_, true)) open_.set_value();
  }
  void Wait() const { opened_.wait(); }

 private:
  std::promise<void> open_;
  std::shared_future<void> opened_ = open_.get_future().share();
  bool is_open_ = false;
};

// Makes a blocking call that must end by its deadline, which comes soon. If it does not, the token ends it.
Code CodeOfWaitingCall(BatchingRuntime& runtime, int64_t id) {
  GradOperands owner = Waiter(id, kSoon);
  const Cancellation token;
  owner.call().waiting.cancellation = token;
  auto call = std::async(std::launch::async, [&] { return runtime.UnbatchGrad(owner.call()).status().code(); });
  if (call.wait_for(kForEver) != std::future_status::ready) token.Cancel();
  return call.get();
}

TEST(BatchingCallbacks, ASleepingCallbackDelaysNoDeadline) {
  Gate gate;
  std::atomic<int> asleep{0}, others{0};
  BatchingRuntime runtime;
  for (int64_t id = 0; id < 100; id += 10) {
    runtime.UnbatchGradAsync(Waiter(id, kSoon).call(), [&](const Result<Tensor>&) {
      ++asleep;
      gate.Wait();
    });
  }
  EXPECT_TRUE(Eventually([&] { return asleep == 10; })) << asleep << " deadlines are kept";
  EXPECT_EQ(CodeOfWaitingCall(runtime, 1000), Code::kDeadlineExceeded);
  runtime.UnbatchGradAsync(Waiter(2000, kSoon).call(), [&](const Result<Tensor>&) { ++others; });
  const Tensor row = TensorOf<float>({1}, Shape{1, 1});
  runtime.BatchAsync(
      {.resource = {}, .in_tensors = {{row.view()}}, .max_batch_size = 2, .batch_timeout_micros = 20'000},
      [&](const Result<BatchOutput>&) { ++others; });
  EXPECT_TRUE(Eventually([&] { return others == 2; })) << others << " deadlines are kept";
  gate.Open();
}

// The same for an expired piece whose keep-alive sleeps in its destructor.
TEST(BatchingCallbacks, ASleepingKeepAliveDelaysNoDeadline) {
  Gate gate;
  std::atomic<int> asleep{0};
  BatchingRuntime runtime({}, {.max_piece_age = kSoon});
  GradOperands piece(1, FloatPiece(1, 2, 0));
  const int something = 0;
  piece.call().grad.keep_alive = std::shared_ptr<const int>(&something, [&](const int*) {
    ++asleep;
    gate.Wait();
  });
  EXPECT_THAT(runtime.UnbatchGrad(piece.call()), IsOk());
  piece.call().grad.keep_alive = nullptr;
  EXPECT_TRUE(Eventually([&] { return asleep == 1; }));
  EXPECT_EQ(CodeOfWaitingCall(runtime, 1000), Code::kDeadlineExceeded);
  gate.Open();
}

// More callbacks than helpers: blocking calls keep their deadlines, further callbacks wait for a helper.
TEST(BatchingCallbacks, EvenAHundredSleepingCallbacks) {
  constexpr int kCalls = 100;
  Gate gate;
  std::atomic<int> completed{0};
  BatchingRuntime runtime;
  for (int64_t id = 0; id < 10 * kCalls; id += 10) {
    runtime.UnbatchGradAsync(Waiter(id, WaitTime(0)).call(), [&](const Result<Tensor>&) {
      gate.Wait();
      ++completed;
    });
  }
  EXPECT_EQ(CodeOfWaitingCall(runtime, 100'000), Code::kDeadlineExceeded);
  EXPECT_EQ(completed, 0);
  gate.Open();
  EXPECT_TRUE(Eventually([&] { return completed == kCalls; }));
}

TEST(BatchingCallbacks, MayMakeACallThatWaits) {
  std::promise<Code> inner;
  BatchingRuntime runtime;
  runtime.UnbatchGradAsync(Waiter(0, kSoon).call(), [&](const Result<Tensor>& result) {
    EXPECT_THAT(result, StatusIs(Code::kDeadlineExceeded, _));
    inner.set_value(CodeOfWaitingCall(runtime, 0));
  });
  EXPECT_EQ(inner.get_future().get(), Code::kDeadlineExceeded);
}

TEST(BatchingCallbacks, MayMakeAsynchronousCallsAndWaitForThem) {
  constexpr int kDepth = 20;
  std::promise<void> end;
  BatchingRuntime runtime;
  std::function<void(int)> call = [&](int depth) {
    runtime.UnbatchGradAsync(Waiter(10 * depth, WaitTime(1000)).call(), [&, depth](const Result<Tensor>& result) {
      EXPECT_THAT(result, StatusIs(Code::kDeadlineExceeded, _));
      if (depth == kDepth) return end.set_value();
      std::atomic<bool> ended{false};
      runtime.UnbatchGradAsync(Waiter(10 * depth + 5, WaitTime(1000)).call(),
                               [&](const Result<Tensor>&) { ended = true; });
      EXPECT_TRUE(Eventually([&] { return ended.load(); }));
      call(depth + 1);
    });
  };
  call(0);
  end.get_future().wait();
}

TEST(BatchingCallbacks, OfARuntimeThatIsDestroyedGetCancelled) {
  std::atomic<int> inner{0};
  auto runtime = std::make_unique<BatchingRuntime>();
  runtime->UnbatchGradAsync(Waiter(0, kForEver).call(), [&](const Result<Tensor>&) {
    const auto expect_cancelled = [&](const Result<Tensor>& result) {
      EXPECT_THAT(result, StatusIs(Code::kCancelled, ::testing::HasSubstr("the runtime is being destroyed")));
      ++inner;
    };
    runtime->UnbatchGradAsync(Waiter(0, kForEver).call(), expect_cancelled);
    expect_cancelled(runtime->UnbatchGrad(Waiter(1, kForEver).call()));
  });
  BatchingRuntime* const ends = runtime.get();
  ends->~BatchingRuntime();
  EXPECT_EQ(inner, 2);
  operator delete(runtime.release());
}

}  // namespace
}  // namespace raggrad::testing
