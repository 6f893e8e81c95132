// Callbacks that misbehave, for RAGGRAD_SOAK_SECONDS (default 5): they sleep, make calls with a deadline, cancel
// others, close resources and destroy the runtime, while other threads call and cancel. Every call completes exactly
// once, no deadline is forgotten, all memory is freed when the runtime is gone, and nothing is touched after that.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "raggrad/ops/batching/test/test_calls.h"
#include "raggrad/ops/batching/test/test_random.h"
#include "raggrad/testing/counting_allocator.h"

namespace raggrad::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kCallers = 6, kCancellers = 2, kTokens = 16, kCallsPerCaller = 60;
constexpr int64_t kKeys = 16;
constexpr int kDeepest = 3;                        // callbacks within callbacks
constexpr auto kLatest = std::chrono::minutes(2);  // after a deadline, on a busy machine

struct Totals {
  std::atomic<int64_t> rounds{0}, calls{0}, slept{0}, called_back{0}, cancelled{0}, closed{0}, destroyed{0};
  std::atomic<int64_t> latest_micros{0};  // the worst delay of a deadline that a thread waited for
};

// One runtime, from its first call to its end. Everything that callbacks use is destroyed with it, so that a sanitizer
// reports uses after that.
class Round {
 public:
  Round(uint64_t seed, Totals& totals) : seed_(seed), totals_(totals) {
    Context ctx;
    ctx.allocator = &allocator_;
    runtime_ = new BatchingRuntime(ctx, {.max_piece_age = WaitTime(2000), .default_timeout = WaitTime(5000)});
  }

  void Play() {
    std::vector<std::thread> cancellers, callers;
    std::atomic<bool> stop{false};
    for (int t = 0; t < kCancellers; ++t) {
      cancellers.emplace_back([&, t] {
        Generator random(seed_ + 1000 + static_cast<uint64_t>(t));
        while (!stop) {
          CancelOne(random);
          std::this_thread::sleep_for(std::chrono::microseconds(random.Below(300)));
        }
      });
    }
    for (int t = 0; t < kCallers; ++t) {
      callers.emplace_back([&, t] {
        Generator random(seed_ + static_cast<uint64_t>(t));
        for (int i = 0; i < kCallsPerCaller; ++i) CallSomething(random, 0);
      });
    }
    for (std::thread& caller : callers) caller.join();
    // Callbacks of waiting calls and other threads' cancellations go on meanwhile.
    Generator random(seed_ + 2000);
    if (random.Below(2) == 0) {
      Destroy();
    } else {
      const auto destroyed = std::make_shared<std::promise<void>>();
      GradOperands owner(kKeys, FloatPiece(1, 2, 0), {kKeys, kKeys + 1});
      owner.call().waiting = {.timeout = WaitTime(random.Below(2000)), .cancellation = TokenOf(random)};
      runtime_->UnbatchGradAsync(owner.call(), [this, destroyed](const Result<Tensor>&) {
        Destroy();
        ++totals_.destroyed;
        destroyed->set_value();
      });
      destroyed->get_future().wait();
    }
    while (inside_ > 0) std::this_thread::yield();  // the runtime was destroyed within a callback, which has to return
    EXPECT_EQ(begun_, answered_);
    EXPECT_EQ(allocator_.live_bytes(), 0U);
    totals_.calls += begun_;
    stop = true;
    for (std::thread& canceller : cancellers) canceller.join();
    ++totals_.rounds;
  }

 private:
  // When the destructor returns, every call has completed, except those on this thread's own stack: one of them ran the
  // callback that destroys.
  void Destroy() {
    delete runtime_;
    EXPECT_EQ(begun_ - answered_, waiting_here_);
  }

  Cancellation TokenOf(Generator& random) {
    const std::lock_guard lock(mutex_);
    return tokens_[static_cast<size_t>(random.Below(kTokens))];
  }
  void CancelOne(Generator& random) {
    Cancellation fresh, old;
    {
      const std::lock_guard lock(mutex_);
      old = std::exchange(tokens_[static_cast<size_t>(random.Below(kTokens))], fresh);
    }
    old.Cancel();
    ++totals_.cancelled;
  }

  // A completion that checks that it runs once, and then misbehaves.
  template <class T>
  Completion<T> Done(Generator& random, int depth) {
    ++begun_;
    const uint64_t seed = random.Bits();
    const auto once = std::make_shared<std::atomic<int>>(0);
    return [this, seed, depth, once](Result<T> result) {
      EXPECT_EQ(once->fetch_add(1), 0) << "a call completed twice";
      { const Result<T> dropped = std::move(result); }
      ++answered_;
      ++inside_;
      Generator mine(seed);
      Misbehave(mine, depth);
      --inside_;
    };
  }

  // The same for a blocking call, which completes when it returns.
  template <class T, class Call>
  void Wait(Generator& random, const Call& call) {
    const Completion<T> done = Done<T>(random, kDeepest);
    ++waiting_here_;
    Result<T> result = call();
    --waiting_here_;
    done(std::move(result));
  }

  void Misbehave(Generator& random, int depth) {
    const int64_t kind = random.Below(100);
    if (kind < 10) {
      std::this_thread::sleep_for(std::chrono::microseconds(random.Below(20'000)));
      ++totals_.slept;
    } else if (kind < 35 && depth < kDeepest) {
      CallSomething(random, depth + 1);
      ++totals_.called_back;
    } else if (kind < 42) {
      CancelOne(random);
    } else if (kind < 44) {
      static_cast<void>(runtime_->Close(ResourceKind::kUnbatchGrad, {"", "r"}));
      ++totals_.closed;
    } else if (kind < 45) {
      runtime_->CloseAll();
      ++totals_.closed;
    }
  }

  void CallSomething(Generator& random, int depth) {
    Waiting waiting{.timeout = WaitTime(random.Below(3000))};
    if (random.Below(2) == 0) waiting.cancellation = TokenOf(random);
    const bool blocks = random.Below(3) == 0;
    const auto begin = Clock::now();
    const int64_t kind = random.Below(3);
    if (kind == 0) {
      CallUnbatchGrad(random, depth, blocks, waiting);
    } else if (kind == 1) {
      CallUnbatch(random, depth, blocks, waiting);
    } else {
      CallBatch(random, depth, blocks, waiting);
    }
    // The call may have run callbacks of others, which take some 20 ms each.
    if (blocks) NoteDelay(Clock::now() - begin - *waiting.timeout);
  }

  void CallUnbatchGrad(Generator& random, int depth, bool blocks, const Waiting& waiting) {
    const int64_t id = random.Below(kKeys);
    std::vector<int64_t> keys;
    if (random.Below(2) == 0) keys = {id, (id + 1) % kKeys};
    GradOperands operands(id, FloatPiece(1, 2, 0), keys);
    operands.call().waiting = waiting;
    if (blocks) {
      Wait<Tensor>(random, [&] { return runtime_->UnbatchGrad(operands.call()); });
    } else {
      runtime_->UnbatchGradAsync(operands.call(), Done<Tensor>(random, depth));
    }
  }

  void CallUnbatch(Generator& random, int depth, bool blocks, const Waiting& waiting) {
    const int64_t id = random.Below(kKeys);
    std::vector<int64_t> keys;
    if (random.Below(2) == 0) keys = {(id + 1) % kKeys, id};
    const Tensor batch = TensorOf(std::vector<float>(keys.size()), Shape{static_cast<int64_t>(keys.size()), 1});
    const auto index = Index(keys);
    const UnbatchCall call{{"", "u"}, batch.view(), index->view(), TensorView::Scalar(id), 3000, waiting};
    if (blocks) {
      Wait<Tensor>(random, [&] { return runtime_->Unbatch(call); });
    } else {
      runtime_->UnbatchAsync(call, Done<Tensor>(random, depth));
    }
  }

  void CallBatch(Generator& random, int depth, bool blocks, const Waiting& waiting) {
    const Tensor row = TensorOf<float>({1, 2}, Shape{1, 2});
    const BatchCall call{.resource = {"", "b"},
                         .in_tensors = {{row.view()}},
                         .max_batch_size = 4,
                         .batch_timeout_micros = 1000,
                         .waiting = waiting};
    if (blocks) {
      Wait<BatchOutput>(random, [&] { return runtime_->Batch(call); });
    } else {
      runtime_->BatchAsync(call, Done<BatchOutput>(random, depth));
    }
  }

  void NoteDelay(Clock::duration delay) {
    const int64_t micros = std::chrono::duration_cast<WaitTime>(delay).count();
    int64_t latest = totals_.latest_micros;
    while (micros > latest && !totals_.latest_micros.compare_exchange_weak(latest, micros)) {
    }
    EXPECT_LT(delay, kLatest) << "a deadline was forgotten";
  }

  const uint64_t seed_;
  Totals& totals_;
  CountingAllocator allocator_;
  BatchingRuntime* runtime_;
  std::mutex mutex_;
  std::array<Cancellation, kTokens> tokens_;
  std::atomic<int64_t> begun_{0}, answered_{0}, inside_{0};
  static inline thread_local int64_t waiting_here_ = 0;  // calls on this thread's stack that have not returned
};

int64_t ResidentKiB() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * 4;
}

TEST(BatchingCallbacksSoakTest, MisbehavingCallbacksHarmNoOtherCall) {
  const auto duration = seconds(NumberFromEnvironment("RAGGRAD_SOAK_SECONDS", 5));
  Totals totals;
  const auto begin = Clock::now();
  auto next_report = begin + seconds(60);
  for (uint64_t seed = TestSeed(); Clock::now() - begin < duration && !::testing::Test::HasFailure(); seed += 10'000) {
    Round(seed, totals).Play();
    if (Clock::now() < next_report) continue;
    next_report += seconds(60);
    std::cout << (Clock::now() - begin) / seconds(1) << " s: " << totals.rounds << " runtimes, " << totals.calls
              << " calls, resident " << ResidentKiB() << " KiB" << std::endl;
  }
  EXPECT_GT(totals.rounds, 0);
  std::cout << totals.rounds << " runtimes (" << totals.destroyed << " destroyed by a callback), " << totals.calls
            << " calls; callbacks slept " << totals.slept << " times, called back " << totals.called_back << ", closed "
            << totals.closed << "; " << totals.cancelled << " cancellations; the latest deadline came "
            << totals.latest_micros << " us late; resident " << ResidentKiB() << " KiB" << std::endl;
}

}  // namespace
}  // namespace raggrad::testing
