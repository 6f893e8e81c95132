#include "raggrad/ops/batching/deadline_timer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <vector>

namespace raggrad::batching {
namespace {

using std::chrono::milliseconds;

// Longer than anything here takes, so that a test that waits for it has failed.
constexpr auto kForEver = std::chrono::minutes(1);

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
  timer.Set(now + milliseconds(30), alarm(3));
  timer.Set(now + milliseconds(10), alarm(1));  // sooner than what the thread sleeps for
  timer.Set(now + milliseconds(20), alarm(2));
  timer.Set(now - milliseconds(1), alarm(0));
  ASSERT_EQ(last.get_future().wait_for(kForEver), std::future_status::ready);
  // The first may go off before the last is set.
  EXPECT_EQ(order.back(), 3);
  EXPECT_GE(Clock::now(), now + milliseconds(30));
}

TEST(DeadlineTimerTest, CancelledAlarmsDoNotGoOff) {
  DeadlineTimer timer;
  std::atomic<bool> called{false};
  std::promise<void> later;
  const int64_t number = timer.Set(Clock::now() + milliseconds(20), [&] { called = true; });
  EXPECT_NE(number, 0);
  timer.Cancel(number);
  timer.Cancel(number);  // once more does no harm
  timer.Cancel(0);
  timer.Set(Clock::now() + milliseconds(40), [&] { later.set_value(); });
  ASSERT_EQ(later.get_future().wait_for(kForEver), std::future_status::ready);
  EXPECT_FALSE(called);
}

TEST(DeadlineTimerTest, AlarmsMaySetAndCancelAlarms) {
  DeadlineTimer timer;
  std::promise<void> second;
  const int64_t forgotten = timer.Set(Clock::now() + kForEver, [] {});
  timer.Set(Clock::now(), [&] {
    timer.Cancel(forgotten);
    timer.Set(Clock::now(), [&] { second.set_value(); });
  });
  EXPECT_EQ(second.get_future().wait_for(kForEver), std::future_status::ready);
}

TEST(DeadlineTimerTest, WhatAnAlarmHoldsIsDestroyed) {
  const auto held = std::make_shared<int>(0);
  {
    DeadlineTimer timer;
    std::promise<void> gone_off;
    timer.Set(Clock::now(), [held, &gone_off] { gone_off.set_value(); });
    const int64_t number = timer.Set(Clock::now() + kForEver, [held] {});
    timer.Set(Clock::now() + kForEver, [held] {});
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
    timer.Set(begin + kForEver, [&] { called = true; });
  }
  EXPECT_LT(Clock::now(), begin + kForEver);
  EXPECT_FALSE(called);
}

TEST(DeadlineTimerTest, MayBeDestroyedByItsOwnAlarm) {
  auto timer = std::make_unique<DeadlineTimer>();
  std::promise<void> destroyed;
  timer->Set(Clock::now() + milliseconds(5), [&] {
    timer.reset();
    destroyed.set_value();
  });
  EXPECT_EQ(destroyed.get_future().wait_for(kForEver), std::future_status::ready);
}

// A thread that polls every millisecond would be switched to some hundred times.
TEST(DeadlineTimerTest, SleepsUntilTheNextDeadline) {
  DeadlineTimer timer;
  std::promise<void> started;
  timer.Set(Clock::now(), [&] { started.set_value(); });
  for (int i = 0; i < 1000; ++i) timer.Set(Clock::now() + kForEver, [] {});
  started.get_future().wait();
  rusage before{}, after{};
  ASSERT_EQ(getrusage(RUSAGE_SELF, &before), 0);
  std::this_thread::sleep_for(milliseconds(300));
  ASSERT_EQ(getrusage(RUSAGE_SELF, &after), 0);
  EXPECT_LE(after.ru_nvcsw - before.ru_nvcsw, 20);
}

}  // namespace
}  // namespace raggrad::batching
