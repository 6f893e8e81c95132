// Tests in children of fork(): the threads and the holders of locks stayed behind in the parent.
#include "raggrad/core/fork.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "raggrad/core/executor.h"
#include "raggrad/core/first_use.h"
#include "raggrad/core/pool_allocator.h"

namespace raggrad {
namespace {

// Whether f() is true in a child. A child that hangs is ended by a signal.
template <class F>
bool TrueInAChild(const F& f) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(f() ? 0 : 1);
  }
  int status = 0;
  const bool waited = child > 0 && waitpid(child, &status, 0) == child;
  if (waited && WIFSIGNALED(status)) ADD_FAILURE() << "the child was ended by signal " << WTERMSIG(status);
  return waited && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool RunsEveryTaskOnce(Executor& executor) {
  std::vector<std::atomic<int>> calls(100);
  const auto body = [&](int64_t task) { calls[static_cast<size_t>(task)].fetch_add(1); };
  executor.Run(100, body);
  for (const std::atomic<int>& count : calls) {
    if (count.load() != 1) return false;
  }
  return true;
}

// Tasks that wait for all others end only if each has a thread.
bool HasRealThreads(Executor& executor, int workers) {
  if (executor.num_workers() != workers) return false;
  std::atomic<int> arrived = 0;
  const auto body = [&](int64_t) {
    arrived.fetch_add(1);
    while (arrived.load() < workers) std::this_thread::yield();
  };
  executor.Run(workers, body);
  return arrived.load() == workers;
}

// A thread that is just being started may hold a lock of AddressSanitizer, which a child would wait for.
std::unique_ptr<Executor> PoolWhoseThreadsRun(int workers) {
  auto pool = MakeThreadPool(workers);
  EXPECT_TRUE(HasRealThreads(*pool, workers));
  return pool;
}

bool ANewPoolWorks(int workers) {
  const auto pool = MakeThreadPool(workers);
  return pool != nullptr && HasRealThreads(*pool, workers) && RunsEveryTaskOnce(*pool);
}

// The child's own threads get the ids of the parent's threads: code that touches an old id hits a new thread.
bool StartsThreadsOfItsOwn(int threads) {
  std::vector<std::thread> own;
  std::atomic<int> ran = 0;
  for (int i = 0; i < threads; ++i) own.emplace_back([&] { ran.fetch_add(1); });
  for (std::thread& thread : own) thread.join();
  return ran.load() == threads;
}

class Fork : public ::testing::TestWithParam<int> {
#if defined(__SANITIZE_THREAD__)
  void SetUp() override { GTEST_SKIP() << "ThreadSanitizer ends a child that gets a thread id of its parent"; }
#endif
};
INSTANTIATE_TEST_SUITE_P(Workers, Fork, ::testing::Values(2, 4, 6, 8),
                         [](const auto& parameter) { return std::to_string(parameter.param); });

TEST_P(Fork, APoolIsDestroyedInAChild) {
  auto pool = PoolWhoseThreadsRun(GetParam());
  EXPECT_TRUE(TrueInAChild([&] {
    pool.reset();
    return ANewPoolWorks(GetParam());
  }));
  EXPECT_TRUE(HasRealThreads(*pool, GetParam()));  // the parent's pool still works
}

TEST_P(Fork, APoolIsDestroyedInAChildThatHasThreads) {
  auto pool = PoolWhoseThreadsRun(GetParam());
  EXPECT_TRUE(TrueInAChild([&] {
    if (!StartsThreadsOfItsOwn(1)) return false;
    std::atomic<bool> stop = false;
    std::thread running([&] {
      while (!stop.load()) std::this_thread::yield();
    });
    const bool serial = pool->num_workers() == 1 && RunsEveryTaskOnce(*pool);
    pool.reset();
    const bool works = ANewPoolWorks(GetParam()) && StartsThreadsOfItsOwn(GetParam());
    stop = true;
    running.join();
    return serial && works;
  }));
}

TEST_P(Fork, WhileThePoolIsBusy) {
  auto pool = MakeThreadPool(GetParam());
  std::atomic<int> inside = 0;
  std::atomic<bool> go_on = false;
  std::thread caller([&] {
    const auto body = [&](int64_t) {
      inside.fetch_add(1);
      while (!go_on.load()) std::this_thread::yield();
    };
    pool->Run(GetParam(), body);
  });
  while (inside.load() < GetParam()) std::this_thread::yield();
  EXPECT_TRUE(TrueInAChild([&] {
    const bool serial = RunsEveryTaskOnce(*pool);
    pool.reset();
    return serial && ANewPoolWorks(GetParam());
  }));
  go_on = true;
  caller.join();
  EXPECT_TRUE(HasRealThreads(*pool, GetParam()));
}

TEST_P(Fork, InAChildOfAChild) {
  auto pool = PoolWhoseThreadsRun(GetParam());
  EXPECT_TRUE(TrueInAChild([&] {
    auto of_the_child = PoolWhoseThreadsRun(GetParam());
    return TrueInAChild([&] {
      const bool serial = RunsEveryTaskOnce(*pool) && RunsEveryTaskOnce(*of_the_child);
      pool.reset();
      of_the_child.reset();
      return serial && ANewPoolWorks(GetParam());
    });
  }));
}

TEST(ForkDefaults, TheDefaultExecutorWorksInAChild) {
  ASSERT_TRUE(RunsEveryTaskOnce(DefaultExecutor()));
  EXPECT_TRUE(
      TrueInAChild([] { return DefaultExecutor().num_workers() == 1 && RunsEveryTaskOnce(DefaultExecutor()); }));
}

// Stops a thread at a place of the test's choice until the test lets it go on.
struct Gate {
  std::binary_semaphore arrived{0}, open{0};
  void Pass() {
    arrived.release();
    open.acquire();
  }
};

TEST(ForkLocks, ALockWhoseHolderStayedBehindCanBeTaken) {
  std::atomic<int> word = 0;
  Gate gate;
  std::thread holder([&] {
    const ForkSafeLock lock(word);
    gate.Pass();
  });
  gate.arrived.acquire();
  EXPECT_FALSE(ForkSafeLock(word, std::try_to_lock).owns_lock());
  EXPECT_TRUE(TrueInAChild([&] {
    bool abandoned = false;
    {
      const ForkSafeLock lock(word);
      abandoned = lock.was_abandoned();
    }
    const ForkSafeLock again(word, std::try_to_lock);
    return abandoned && again.owns_lock() && !again.was_abandoned();
  }));
  gate.open.release();
  holder.join();
  const ForkSafeLock lock(word);
  EXPECT_TRUE(lock.owns_lock());
  EXPECT_FALSE(lock.was_abandoned());
}

TEST(ForkLocks, OneThreadAtATimeHoldsALock) {
  std::atomic<int> word = 0;
  int counted = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        const ForkSafeLock lock(word);
        ++counted;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counted, 20000);
}

TEST(ForkLocks, AnObjectInTheMakingIsMadeAgainInAChild) {
  static constinit FirstUse<int> number;
  Gate gate;
  std::thread maker([&] {
    EXPECT_EQ(number.Get([&] {
      gate.Pass();
      return 7;
    }),
              7);
  });
  gate.arrived.acquire();
  EXPECT_TRUE(TrueInAChild([&] { return number.Get([] { return 8; }) == 8; }));
  gate.open.release();
  maker.join();
  EXPECT_EQ(number.Get([] { return 9; }), 7);
}

// Waits in Deallocate, which PoolAllocator calls while it holds its lock.
class SlowHeap final : public Allocator {
 public:
  explicit SlowHeap(Gate& gate) : gate_(gate) {}
  void* Allocate(size_t bytes) noexcept override { return DefaultAllocator().Allocate(bytes); }
  void Deallocate(void* pointer, size_t bytes) noexcept override {
    if (!passed_.exchange(true)) gate_.Pass();
    DefaultAllocator().Deallocate(pointer, bytes);
  }

 private:
  Gate& gate_;
  std::atomic<bool> passed_ = false;
};

TEST(ForkLocks, APoolAllocatorWorksInAChildWhateverTheParentDid) {
  constexpr size_t kBytes = size_t{2} << 20;
  Gate gate;
  SlowHeap heap(gate);
  auto pool = std::make_unique<PoolAllocator>(8 * kBytes, heap);
  pool->Deallocate(pool->Allocate(kBytes), kBytes);
  std::thread dropper([&] { pool->SetMaxIdleBytes(0); });
  gate.arrived.acquire();
  EXPECT_TRUE(TrueInAChild([&] {
    const bool forgot = pool->idle_bytes() == 0;
    pool->SetMaxIdleBytes(8 * kBytes);
    void* const block = pool->Allocate(kBytes);
    pool->Deallocate(block, kBytes);
    const bool keeps = block != nullptr && pool->idle_bytes() == kBytes;
    pool.reset();
    return forgot && keeps;
  }));
  gate.open.release();
  dropper.join();
  EXPECT_EQ(pool->idle_bytes(), 0U);
}

}  // namespace
}  // namespace raggrad
