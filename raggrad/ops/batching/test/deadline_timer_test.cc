#include "raggrad/ops/batching/waiting/deadline_timer.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace raggrad::batching {
namespace {

using std::chrono::milliseconds;

// Longer than any test takes: one that waits this long has failed.
constexpr auto kForEver = std::chrono::minutes(1);

// An alarm that counts its decisions and carries out `call`.
class Call final : public TimerAlarm {
 public:
  explicit Call(std::function<void()> call, std::atomic<int>* decisions = nullptr)
      : call_(std::move(call)), decisions_(decisions) {}

  bool Decide() noexcept override {
    if (decisions_ != nullptr) ++*decisions_;
    return true;
  }
  void CarryOut() noexcept override { call_(); }

 private:
  const std::function<void()> call_;
  std::atomic<int>* const decisions_;
};

template <class F>
int64_t Set(DeadlineTimer& timer, Clock::time_point when, F call, std::atomic<int>* decisions = nullptr) {
  return timer.Set(when, std::make_unique<Call>(std::move(call), decisions));
}

void Await(const std::atomic<int>& number, int value) {
  const Clock::time_point end = Clock::now() + kForEver;
  while (number != value && Clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(number, value);
}

TEST(AfterTest, NeverOverflows) {
  const Clock::time_point now = Clock::now();
  EXPECT_EQ(After(now, WaitTime(5)), now + WaitTime(5));
  EXPECT_EQ(After(now, WaitTime(-5)), now);
  EXPECT_EQ(After(now, WaitTime::min()), now);
  EXPECT_EQ(After(now, kNoDeadline), std::nullopt);
  EXPECT_EQ(After(now, kNoDeadline - WaitTime(1)), std::nullopt);
}

TEST(DeadlineTimerTest, AlarmsGoOffInTheOrderOfTheirTimes) {
  DeadlineTimer timer;
  std::mutex mutex;
  std::vector<int> order;
  std::promise<void> last;
  const Clock::time_point now = Clock::now();
  const auto alarm = [&](int number) {
    return [&, number] {
      const std::lock_guard lock(mutex);
      order.push_back(number);
      if (order.size() == 4) last.set_value();
    };
  };
  Set(timer, now + milliseconds(30), alarm(3));
  Set(timer, now + milliseconds(10), alarm(1));  // before the time the watcher sleeps until
  Set(timer, now + milliseconds(20), alarm(2));
  Set(timer, now - milliseconds(1), alarm(0));
  ASSERT_EQ(last.get_future().wait_for(kForEver), std::future_status::ready);
  // The first may go off before the last is set.
  EXPECT_EQ(order.back(), 3);
  EXPECT_GE(Clock::now(), now + milliseconds(30));
}

TEST(DeadlineTimerTest, CancelledAlarmsDoNotGoOff) {
  DeadlineTimer timer;
  std::atomic<bool> called{false};
  std::promise<void> later;
  const int64_t number = Set(timer, Clock::now() + milliseconds(20), [&] { called = true; });
  EXPECT_NE(number, 0);
  timer.Cancel(number);
  timer.Cancel(number);  // a second time does no harm
  timer.Cancel(0);
  Set(timer, Clock::now() + milliseconds(40), [&] { later.set_value(); });
  ASSERT_EQ(later.get_future().wait_for(kForEver), std::future_status::ready);
  EXPECT_FALSE(called);
}

TEST(DeadlineTimerTest, AlarmsMaySetAndCancelAlarms) {
  DeadlineTimer timer;
  std::promise<void> second;
  const int64_t forgotten = Set(timer, Clock::now() + kForEver, [] {});
  Set(timer, Clock::now(), [&] {
    timer.Cancel(forgotten);
    Set(timer, Clock::now(), [&] { second.set_value(); });
  });
  EXPECT_EQ(second.get_future().wait_for(kForEver), std::future_status::ready);
}

TEST(DeadlineTimerTest, WhatAnAlarmHoldsIsDestroyed) {
  const auto held = std::make_shared<int>(0);
  {
    DeadlineTimer timer;
    std::promise<void> gone_off;
    Set(timer, Clock::now(), [held, &gone_off] { gone_off.set_value(); });
    const int64_t number = Set(timer, Clock::now() + kForEver, [held] {});
    Set(timer, Clock::now() + kForEver, [held] {});
    ASSERT_EQ(gone_off.get_future().wait_for(kForEver), std::future_status::ready);
    timer.Cancel(number);
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(DeadlineTimerTest, EndsAtOnceWithAlarmsPending) {
  const Clock::time_point begin = Clock::now();
  std::atomic<bool> called{false};
  {
    DeadlineTimer timer;
    Set(timer, begin + kForEver, [&] { called = true; });
  }
  EXPECT_LT(Clock::now(), begin + kForEver);
  EXPECT_FALSE(called);
}

TEST(DeadlineTimerTest, MayBeDestroyedByItsOwnAlarm) {
  auto timer = std::make_unique<DeadlineTimer>();
  std::promise<void> destroyed;
  Set(*timer, Clock::now() + milliseconds(5), [&] {
    timer.reset();
    destroyed.set_value();
  });
  EXPECT_EQ(destroyed.get_future().wait_for(kForEver), std::future_status::ready);
}

// A thread that polls every millisecond would be switched to some hundred times.
TEST(DeadlineTimerTest, SleepsUntilTheNextDeadline) {
  DeadlineTimer timer;
  std::promise<void> started;
  Set(timer, Clock::now(), [&] { started.set_value(); });
  for (int i = 0; i < 1000; ++i) Set(timer, Clock::now() + kForEver, [] {});
  started.get_future().wait();
  rusage before{}, after{};
  ASSERT_EQ(getrusage(RUSAGE_SELF, &before), 0);
  std::this_thread::sleep_for(milliseconds(300));
  ASSERT_EQ(getrusage(RUSAGE_SELF, &after), 0);
  EXPECT_LE(after.ru_nvcsw - before.ru_nvcsw, 20);
}

TEST(DeadlineTimerTest, CarriesOutOnlyWhatDecideAsksFor) {
  class Nothing final : public TimerAlarm {
   public:
    explicit Nothing(std::promise<std::thread::id>& decided) : decided_(decided) {}
    bool Decide() noexcept override {
      decided_.set_value(std::this_thread::get_id());
      return false;
    }
    void CarryOut() noexcept override { ADD_FAILURE(); }

   private:
    std::promise<std::thread::id>& decided_;
  };
  std::promise<std::thread::id> decided, carried_out;
  DeadlineTimer timer;
  timer.Set(Clock::now(), std::make_unique<Nothing>(decided));
  Set(timer, Clock::now() + milliseconds(1), [&] { carried_out.set_value(std::this_thread::get_id()); });
  EXPECT_NE(decided.get_future().get(), carried_out.get_future().get()) << "one thread decides, another carries out";
}

// More alarms than helpers, and all of them wait: the watcher goes on deciding.
TEST(DeadlineTimerTest, BusyHelpersAreNotWaitedFor) {
  constexpr int kMost = static_cast<int>(DeadlineTimer::kMostHelpers), kAlarms = kMost + 5;
  std::promise<void> release;
  const std::shared_future<void> released(release.get_future());
  std::atomic<int> decided{0}, begun{0}, ended{0};
  DeadlineTimer timer;
  const auto wait = [&] {
    ++begun;
    released.wait();
    ++ended;
  };
  for (int i = 0; i < kAlarms; ++i) Set(timer, Clock::now(), wait, &decided);
  Await(decided, kAlarms);
  Await(begun, kMost);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(begun, kMost) << "more helpers than kMostHelpers";
  release.set_value();
  Await(ended, kAlarms);
}

TEST(DeadlineTimerTest, StoppingCarriesOutWhatHasBeenDecided) {
  constexpr int kAlarms = static_cast<int>(DeadlineTimer::kMostHelpers) + 5;
  std::atomic<int> decided{0}, ended{0};
  std::atomic<bool> stopping{false};
  DeadlineTimer timer;
  const auto wait = [&] {
    while (!stopping) std::this_thread::sleep_for(milliseconds(1));
    ++ended;
  };
  for (int i = 0; i < kAlarms; ++i) Set(timer, Clock::now(), wait, &decided);
  Await(decided, kAlarms);
  stopping = true;
  timer.Stop();
  EXPECT_EQ(ended, kAlarms);
}

// While it lives no thread can be started: its stack would be larger than the address space.
class WithoutThreads {
 public:
  WithoutThreads() {
    pthread_attr_t attributes;
    EXPECT_EQ(pthread_getattr_default_np(&attributes), 0);
    EXPECT_EQ(pthread_attr_getstacksize(&attributes, &stack_size_), 0);
    Apply(size_t{1} << 50);
  }
  ~WithoutThreads() { Apply(stack_size_); }

 private:
  static void Apply(size_t stack_size) {
    pthread_attr_t attributes;
    EXPECT_EQ(pthread_attr_init(&attributes), 0);
    EXPECT_EQ(pthread_attr_setstacksize(&attributes, stack_size), 0);
    EXPECT_EQ(pthread_setattr_default_np(&attributes), 0);
    EXPECT_EQ(pthread_attr_destroy(&attributes), 0);
  }

  size_t stack_size_ = 0;
};

TEST(DeadlineTimerTest, TriesAgainIfNoThreadCanBeStarted) {
  std::atomic<int> decided{0}, ended{0};
  DeadlineTimer without_watcher, timer;
  Set(timer, Clock::now() + kForEver, [] {});  // starts the watcher, but no helper
  {
    const WithoutThreads without_threads;
    EXPECT_THROW(Set(without_watcher, Clock::now(), [] {}), std::system_error);
    Set(
        timer, Clock::now(), [&] { ++ended; }, &decided);
    Await(decided, 1);
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_EQ(ended, 0);
  }
  Await(ended, 1);
}

// The child's first threads get the memory, and with it the ids, of the parent's threads.
TEST(DeadlineTimerTest, IsDestroyedInAChildOfFork) {
  std::promise<void> release;
  const std::shared_future<void> released(release.get_future());
  std::atomic<int> begun{0};
  auto timer = std::make_unique<DeadlineTimer>();
  for (int i = 0; i < 7; ++i) {
    Set(*timer, Clock::now(), [&] {
      ++begun;
      released.wait();
    });
  }
  Await(begun, 7);
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(30);  // a deadlock ends the child by a signal
    timer.reset();
#if !defined(__SANITIZE_THREAD__)  // TSan kills a child of a process with threads if the child starts threads
    DeadlineTimer own;
    std::promise<void> gone_off;
    Set(own, Clock::now(), [&] { gone_off.set_value(); });
    gone_off.get_future().wait();
#endif
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  release.set_value();
}

}  // namespace
}  // namespace raggrad::batching
