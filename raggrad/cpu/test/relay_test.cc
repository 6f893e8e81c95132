#include "raggrad/cpu/relay.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "raggrad/core/error_text.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/settings.h"

namespace raggrad::cpu {
namespace {

// Returns the chunks whose work was done, in order, if those with ready(chunk) become ready on the context's threads.
template <class F>
std::vector<int64_t> Done(const Context& ctx, int64_t chunks, const F& ready) {
  Result<Relay> relay = Relay::Make(ctx, chunks);
  EXPECT_TRUE(relay.ok());
  std::vector<int64_t> done;  // needs no lock: one thread has the turn
  const auto go_on = [&] {
    Relay::Turn turn(*relay);
    if (!turn.ok()) return;
    for (const int64_t count = turn.CountReady(); std::ssize(done) < count;) done.push_back(std::ssize(done));
  };
  ExecutorOf(ctx).Run(chunks, [&](int64_t chunk) {
    if (ready(chunk)) relay->Ready(chunk);
    go_on();
  });
  go_on();
  return done;
}

std::vector<int64_t> FirstNumbers(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(RelayTest, DoesEveryChunkOnceInOrder) {
  for (const int64_t chunks : {1, 2, 3, 100, 10'000}) {
    testing::ForEachSetting(
        [&](const Context& ctx) { EXPECT_EQ(Done(ctx, chunks, [](int64_t) { return true; }), FirstNumbers(chunks)); });
  }
}

TEST(RelayTest, StopsAtAChunkThatIsNeverReady) {
  testing::ForEachSetting([&](const Context& ctx) {
    EXPECT_EQ(Done(ctx, 100, [](int64_t chunk) { return chunk != 70; }), FirstNumbers(70));
  });
}

TEST(RelayTest, CountsFromTheFirstChunk) {
  Result<Relay> relay = Relay::Make({}, 4);
  ASSERT_TRUE(relay.ok());
  const auto count = [&] { return Relay::Turn(*relay).CountReady(); };
  for (const auto& [chunk, want] : std::vector<std::pair<int64_t, int64_t>>{{3, 0}, {1, 0}, {0, 2}, {2, 4}}) {
    relay->Ready(chunk);
    EXPECT_EQ(count(), want);
  }
}

TEST(RelayTest, OneThreadHasTheTurn) {
  Result<Relay> relay = Relay::Make({}, 1);
  ASSERT_TRUE(relay.ok());
  {
    const Relay::Turn first(*relay);
    EXPECT_TRUE(first.ok());
    EXPECT_FALSE(Relay::Turn(*relay).ok());
    EXPECT_FALSE(Relay::Turn(*relay).ok());  // the one above did not have the turn, so it did not give it back
  }
  EXPECT_TRUE(Relay::Turn(*relay).ok());
}

TEST(RelayTest, ReportsAFailedAllocation) {
  testing::ExpectEveryAllocationFailureIsReported(
      {}, [](const Context& ctx) { return WithOp("Relay", [&] { return Relay::Make(ctx, 8).status(); }); });
}

}  // namespace
}  // namespace raggrad::cpu
