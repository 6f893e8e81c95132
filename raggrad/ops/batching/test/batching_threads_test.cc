// Calls, cancellations, deadlines, closes and new limits from many threads at once, with keys that collide all the
// time: every call completes exactly once, no piece is handed out twice or to the wrong call, and the statistics add
// up.
#include <gmock/gmock.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "raggrad/ops/batching/test/test_calls.h"
#include "raggrad/ops/batching/test/test_random.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

constexpr int kThreads = 8;
constexpr int64_t kKeys = 16;  // a piece's number modulo this is its key

int64_t CallsPerThread() { return ModelSteps() / 50; }

// All calls that were begun, and the pieces that were handed out.
class Ledger {
 public:
  explicit Ledger(int64_t calls) : completions_(static_cast<size_t>(calls)), handed_out_(static_cast<size_t>(calls)) {}

  int64_t NewSerial() { return next_.fetch_add(1); }
  void Complete(int64_t serial) { ++completions_[static_cast<size_t>(serial)]; }

  // The piece that call `serial` brought under `key`.
  static int64_t PieceOf(int64_t serial, int64_t key) { return serial * kKeys + key; }
  void HandOut(int64_t piece, int64_t key) {
    EXPECT_EQ(piece % kKeys, key) << "a piece went to the wrong call";
    EXPECT_EQ(handed_out_[static_cast<size_t>(piece / kKeys)].fetch_or(1 << key) & (1 << key), 0)
        << "a piece was handed out twice";
  }

  void ExpectEveryCallCompletedOnce() const {
    const auto begun = static_cast<size_t>(next_.load());
    EXPECT_EQ(begun, completions_.size());
    for (size_t i = 0; i < begun; ++i) EXPECT_EQ(completions_[i], 1) << "call " << i;
  }

 private:
  std::atomic<int64_t> next_{0};
  std::vector<std::atomic<int>> completions_;
  std::vector<std::atomic<int>> handed_out_;  // one bit per key
};

// The tokens of calls that may be waiting, for other threads to cancel.
class Tokens {
 public:
  void Put(int thread, const Cancellation& token) {
    const std::lock_guard lock(mutex_);
    tokens_[thread] = token;
  }
  void Cancel(int thread) {
    std::optional<Cancellation> token;
    {
      const std::lock_guard lock(mutex_);
      token = tokens_[thread];
    }
    if (token) token->Cancel();
  }

 private:
  std::mutex mutex_;
  std::optional<Cancellation> tokens_[kThreads];
};

Waiting RandomWaiting(Generator& random, Tokens& tokens, int thread) {
  Waiting waiting{.timeout = WaitTime(random.Below(3000))};
  if (random.Below(2) == 0) tokens.Put(thread, waiting.cancellation.emplace());
  return waiting;
}

std::vector<int64_t> RandomKeys(Generator& random, int64_t own) {
  std::vector<int64_t> keys = {own};
  for (int64_t more = random.Below(4); more > 0; --more) {
    const int64_t key = random.Below(kKeys);
    if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
  }
  return keys;
}

void CallUnbatchGrad(BatchingRuntime& runtime, Ledger& ledger, Generator& random, Tokens& tokens, int thread) {
  const int64_t serial = ledger.NewSerial();
  const int64_t id = random.Below(kKeys);
  std::vector<int64_t> keys;
  if (random.Below(2) == 0) keys = RandomKeys(random, id);
  const auto grad = std::make_shared<const Tensor>(TensorOf<int64_t>({Ledger::PieceOf(serial, id)}, Shape{1, 1}));
  GradOperands operands(id, grad, keys);
  operands.call().waiting = RandomWaiting(random, tokens, thread);
  if (random.Below(2) == 0) operands.call().grad.keep_alive = grad;
  const auto complete = [&ledger, serial, keys](const Result<Tensor>& result) {
    ledger.Complete(serial);
    if (!result.ok()) return;
    ASSERT_EQ(result->shape()[0], static_cast<int64_t>(keys.size()));
    for (size_t i = 0; i < keys.size(); ++i) ledger.HandOut(result->As<int64_t>()[i], keys[i]);
  };
  if (random.Below(2) == 0) {
    complete(runtime.UnbatchGrad(operands.call()));
  } else {
    runtime.UnbatchGradAsync(operands.call(), complete);
  }
}

void CallUnbatch(BatchingRuntime& runtime, Ledger& ledger, Generator& random, Tokens& tokens, int thread) {
  const int64_t serial = ledger.NewSerial();
  const int64_t id = random.Below(kKeys);
  std::vector<int64_t> keys;
  if (random.Below(2) == 0) keys = RandomKeys(random, random.Below(8) == 0 ? random.Below(kKeys) : id);
  std::vector<int64_t> pieces;
  for (const int64_t key : keys) pieces.push_back(Ledger::PieceOf(serial, key));
  const Tensor batch = TensorOf(pieces, Shape{static_cast<int64_t>(pieces.size()), 1});
  const auto index = Index(keys);
  const UnbatchCall call{
      {"", "r"}, batch.view(), index->view(), TensorView::Scalar(id), 2000, RandomWaiting(random, tokens, thread)};
  const auto complete = [&ledger, serial, id](const Result<Tensor>& result) {
    ledger.Complete(serial);
    if (!result.ok()) return;
    ASSERT_EQ(result->shape()[0], 1);
    ledger.HandOut(*result->As<int64_t>(), id);
  };
  if (random.Below(2) == 0) {
    complete(runtime.Unbatch(call));
  } else {
    runtime.UnbatchAsync(call, complete);
  }
}

void CallBatch(BatchingRuntime& runtime, Ledger& ledger, Generator& random, Tokens& tokens, int thread) {
  const int64_t serial = ledger.NewSerial();
  const Tensor row = TensorOf<int64_t>({Ledger::PieceOf(serial, 0)}, Shape{1, 1});
  const BatchCall call{.resource = {"", "r"},
                       .in_tensors = {{row.view()}},
                       .max_batch_size = 4,
                       .batch_timeout_micros = 500,
                       .batching_queue = random.Below(4) == 0 ? "other" : "",
                       .waiting = RandomWaiting(random, tokens, thread)};
  const auto complete = [&ledger, serial](const Result<BatchOutput>& result) {
    ledger.Complete(serial);
    if (!result.ok()) return;
    const Tensor& rows = result->batched_tensors[0];
    for (int64_t i = 0; i < rows.shape()[0]; ++i) ledger.HandOut(rows.As<int64_t>()[i], 0);
  };
  if (random.Below(2) == 0) {
    complete(runtime.Batch(call));
  } else {
    runtime.BatchAsync(call, complete);
  }
}

using Call = void (*)(BatchingRuntime&, Ledger&, Generator&, Tokens&, int);

struct Kind {
  const char* name;
  ResourceKind kind;
  Call call;
};

class BatchingThreads : public ::testing::TestWithParam<Kind> {};

TEST_P(BatchingThreads, EveryCallCompletesOnce) {
  const uint64_t seed = TestSeed();
  Ledger ledger(kThreads * CallsPerThread());
  Tokens tokens;
  {
    BatchingRuntime runtime({}, {.max_piece_age = WaitTime(2000)});
    std::atomic<int> running{kThreads};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        Generator random(seed + static_cast<uint64_t>(t));
        for (int64_t i = 0; i < CallsPerThread(); ++i) GetParam().call(runtime, ledger, random, tokens, t);
        --running;
      });
    }
    Generator random(seed + kThreads);
    while (running > 0) {
      tokens.Cancel(static_cast<int>(random.Below(kThreads)));
      const auto statistics = runtime.Statistics(GetParam().kind, {"", "r"});
      if (statistics.ok()) {
        EXPECT_GE(statistics->calls, statistics->succeeded + statistics->failed);
      }
      if (random.Below(100) == 0) {
        static_cast<void>(
            runtime.SetLimits(GetParam().kind, {"", "r"}, {.max_piece_age = WaitTime(random.Below(5000))}));
      }
      if (random.Below(300) == 0) static_cast<void>(runtime.Close(GetParam().kind, {"", "r"}));
      std::this_thread::yield();
    }
    for (std::thread& thread : threads) thread.join();
    // All waits end by their deadlines.
    for (;;) {
      const auto statistics = runtime.Statistics(GetParam().kind, {"", "r"});
      if (!statistics.ok() || statistics->calls == statistics->succeeded + statistics->failed) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  ledger.ExpectEveryCallCompletedOnce();
}

INSTANTIATE_TEST_SUITE_P(All, BatchingThreads,
                         ::testing::Values(Kind{"UnbatchGrad", ResourceKind::kUnbatchGrad, CallUnbatchGrad},
                                           Kind{"Unbatch", ResourceKind::kUnbatch, CallUnbatch},
                                           Kind{"Batch", ResourceKind::kBatch, CallBatch}),
                         [](const auto& kind) { return kind.param.name; });

// Sleeps as a host's thread would, and counts how often.
class CountingSleeper final : public Sleeper {
 public:
  explicit CountingSleeper(const Cancellation* cancels = nullptr) : cancels_(cancels) {}

  void Sleep() noexcept override {
    ++sleeps;
    if (cancels_ != nullptr) cancels_->Cancel();  // as a signal would
    while (!awake_) awake_.wait(false);
  }
  void Wake() noexcept override {
    ++wakes;
    awake_ = true;
    awake_.notify_one();
  }

  std::atomic<int> sleeps = 0, wakes = 0;

 private:
  const Cancellation* const cancels_;
  std::atomic<bool> awake_ = false;
};

TEST(BatchingSleeper, SleepsOnceIfTheCallWaits) {
  BatchingRuntime runtime;
  CountingSleeper sleeper;
  GradOperands owner(1, FloatPiece(1, 2, 0), {1, 2});
  owner.call().waiting.sleeper = &sleeper;
  std::thread thread([&] { EXPECT_THAT(runtime.UnbatchGrad(owner.call()), IsOk()); });
  while (sleeper.sleeps == 0) std::this_thread::yield();
  EXPECT_THAT(runtime.UnbatchGrad(GradOperands(2, FloatPiece(1, 2, 0)).call()), IsOk());
  thread.join();
  EXPECT_EQ(sleeper.sleeps, 1);
  EXPECT_EQ(sleeper.wakes, 1);
}

TEST(BatchingSleeper, IsNotAskedIfTheCallDoesNotWait) {
  BatchingRuntime runtime;
  CountingSleeper sleeper;
  GradOperands owner(1, FloatPiece(1, 2, 0), {1});
  owner.call().waiting.sleeper = &sleeper;
  EXPECT_THAT(runtime.UnbatchGrad(owner.call()), IsOk());
  EXPECT_EQ(sleeper.sleeps + sleeper.wakes, 0);
}

TEST(BatchingSleeper, MayEndTheCallItself) {
  BatchingRuntime runtime;
  const Tensor rows = TensorOf<float>({1, 2}, Shape{1, 2});
  const auto expect_cancelled = [&](const auto& call_with) {
    const Cancellation token;
    CountingSleeper sleeper(&token);
    EXPECT_THAT(call_with(Waiting{.cancellation = token, .sleeper = &sleeper}),
                StatusIs(Code::kCancelled, ::testing::_));
    EXPECT_EQ(sleeper.wakes, 1);
  };
  GradOperands owner(1, FloatPiece(1, 2, 0), {1, 2});
  expect_cancelled([&](const Waiting& waiting) {
    owner.call().waiting = waiting;
    return runtime.UnbatchGrad(owner.call()).status();
  });
  expect_cancelled([&](const Waiting& waiting) {
    const GradOperands nothing(1, FloatPiece(0, 2, 0));
    return runtime.Unbatch({{}, nothing.grad().view(), nothing.call().batch_index, nothing.call().id, {}, waiting})
        .status();
  });
  expect_cancelled([&](const Waiting& waiting) {
    BatchCall call{
        .resource = {}, .in_tensors = {{rows.view()}}, .max_batch_size = 2, .batch_timeout_micros = 60'000'000};
    call.waiting = waiting;
    return runtime.Batch(call).status();
  });
}

}  // namespace
}  // namespace raggrad::testing
