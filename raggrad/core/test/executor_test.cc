#include "raggrad/core/executor.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "raggrad/cpu/chunks.h"

namespace raggrad {
namespace {

void ExpectEveryTaskOnce(Executor& executor, int64_t tasks) {
  std::vector<std::atomic<int>> calls(static_cast<size_t>(tasks));
  const auto body = [&](int64_t task) { calls[static_cast<size_t>(task)].fetch_add(1); };
  executor.Run(tasks, body);
  for (const std::atomic<int>& count : calls) EXPECT_EQ(count.load(), 1);
}

TEST(ExecutorTest, RunsEveryTaskOnce) {
  for (const int workers : {1, 2, 7}) {
    const auto pool = MakeThreadPool(workers);
    ASSERT_NE(pool, nullptr);
    EXPECT_EQ(pool->num_workers(), workers);
    for (const int64_t tasks : {0, 1, 2, 5, 100}) ExpectEveryTaskOnce(*pool, tasks);
    for (int again = 0; again < 500; ++again) ExpectEveryTaskOnce(*pool, 9);
  }
  ExpectEveryTaskOnce(SerialExecutor(), 10);
  ExpectEveryTaskOnce(DefaultExecutor(), 10);
  EXPECT_GE(MakeThreadPool(-3)->num_workers(), 1);
}

// Two tasks that wait for each other can only both end if they really run at the same time.
TEST(ExecutorTest, WorkersRunAtTheSameTime) {
  const auto pool = MakeThreadPool(2);
  std::mutex mutex;
  std::condition_variable changed;
  int arrived = 0;
  const auto body = [&](int64_t) {
    std::unique_lock lock(mutex);
    ++arrived;
    changed.notify_all();
    changed.wait(lock, [&] { return arrived == 2; });
  };
  pool->Run(2, body);
  EXPECT_EQ(arrived, 2);
}

TEST(ExecutorTest, NestedAndConcurrentRunsFinish) {
  const auto pool = MakeThreadPool(3);
  std::atomic<int> inner_calls = 0;
  const auto inner = [&](int64_t) { inner_calls.fetch_add(1); };
  const auto outer = [&](int64_t) { pool->Run(5, inner); };
  pool->Run(4, outer);
  EXPECT_EQ(inner_calls.load(), 20);

  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      for (int k = 0; k < 200; ++k) ExpectEveryTaskOnce(*pool, 7);
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(ExecutorTest, AForkedChildWorksOnItsOwn) {
  const auto pool = MakeThreadPool(3);
  ExpectEveryTaskOnce(*pool, 10);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);  // a deadlock ends the child by a signal
    std::atomic<int> calls = 0;
    const auto body = [&](int64_t) { calls.fetch_add(1); };
    pool->Run(10, body);
    _exit(calls.load() == 10 && pool->num_workers() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST(ChunksTest, CoverTheRangeInOrder) {
  for (const int64_t size : {0, 1, 6, 7, 8, 1000}) {
    for (const int64_t count : {1, 2, 7}) {
      const cpu::Chunks chunks{size, count};
      int64_t expected = 0;
      for (int64_t chunk = 0; chunk < count; ++chunk) {
        EXPECT_EQ(chunks.begin(chunk), expected);
        EXPECT_LE(chunks.end(chunk) - chunks.begin(chunk), size / count + 1);
        expected = chunks.end(chunk);
      }
      EXPECT_EQ(expected, size);
    }
  }
}

TEST(ChunksTest, SmallWorkIsNotSplit) {
  const auto pool = MakeThreadPool(4);
  EXPECT_EQ(cpu::SplitEvenly(*pool, 99, 100).count, 1);
  EXPECT_EQ(cpu::SplitEvenly(*pool, 250, 100).count, 2);
  EXPECT_EQ(cpu::SplitEvenly(*pool, 50'000, 100).count, 4);
  EXPECT_EQ(cpu::SplitEvenly(*pool, 50'000, 100, 3).count, 12);
  EXPECT_EQ(cpu::SplitEvenly(SerialExecutor(), 10'000, 100, 3).count, 1);
}

TEST(ChunksTest, LargeWorkIsCutInRoundsThatKeepEveryWorkerBusy) {
  const auto pool = MakeThreadPool(4);
  EXPECT_EQ(cpu::SplitEvenly(*pool, 4 * 12'800, 100).count, 4);
  EXPECT_EQ(cpu::SplitEvenly(*pool, 4 * 12'800 + 100, 100).count, 8);
  EXPECT_EQ(cpu::SplitEvenly(SerialExecutor(), 12'800, 100).count, 1);
  EXPECT_EQ(cpu::SplitEvenly(SerialExecutor(), 12'900, 100).count, 2);
  for (const int64_t size : {100'000, 1'234'567, 10'000'000}) {
    const cpu::Chunks chunks = cpu::SplitEvenly(*pool, size, 100);
    EXPECT_EQ(chunks.count % 4, 0);
    EXPECT_LE(chunks.end(0), 100 * (cpu::kMostGrains + 1)) << "too long to be stopped";
  }
}

}  // namespace
}  // namespace raggrad
