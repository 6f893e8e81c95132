#include "raggrad/ops/batching/cancellation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace raggrad {
namespace {

TEST(CancellationTest, CopiesNameOneToken) {
  const Cancellation token;
  const Cancellation copy = token;  // NOLINT: the copy is the point
  EXPECT_FALSE(copy.cancelled());
  token.Cancel();
  EXPECT_TRUE(copy.cancelled());
}

TEST(CancellationTest, CallsBackOnce) {
  const Cancellation token;
  int calls = 0;
  EXPECT_GT(token.Notify([&] { ++calls; }), 0);
  token.Cancel();
  token.Cancel();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(token.Notify([&] { ++calls; }), 0);
  EXPECT_EQ(calls, 1);
}

TEST(CancellationTest, ForgottenCallbacksDoNotRun) {
  const Cancellation token;
  const auto held = std::make_shared<int>(0);
  int calls = 0;
  const int64_t first = token.Notify([held, &calls] { ++calls; });
  const int64_t second = token.Notify([held, &calls] { calls += 10; });
  token.Forget(first);
  token.Forget(first);
  EXPECT_EQ(held.use_count(), 2);
  token.Cancel();
  EXPECT_EQ(calls, 10);
  EXPECT_EQ(held.use_count(), 1);
  token.Forget(second);
}

TEST(CancellationTest, CallbacksMayUseTheToken) {
  const Cancellation token;
  bool seen = false;
  token.Notify([&] {
    seen = token.cancelled();
    token.Cancel();
    token.Forget(token.Notify([] {}));
  });
  token.Cancel();
  EXPECT_TRUE(seen);
}

TEST(CancellationTest, EveryCallbackRunsOnceOrIsRefused) {
  for (int round = 0; round < 100; ++round) {
    const Cancellation token;
    std::atomic<int> calls{0};
    std::atomic<int> refused{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 10; ++i) {
          if (token.Notify([&] { ++calls; }) == 0) ++refused;
        }
      });
    }
    token.Cancel();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(calls + refused, 40);
  }
}

}  // namespace
}  // namespace raggrad
