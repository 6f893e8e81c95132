#include "raggrad/cpu/relay.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/settings.h"

namespace raggrad::cpu {
namespace {

// The chunks that were followed, when those for which ready(chunk) holds become ready on the context's threads.
template <class F>
std::vector<int64_t> Followed(const Context& ctx, int64_t chunks, const F& ready) {
  Result<Relay> relay = Relay::Make(ctx, chunks);
  EXPECT_TRUE(relay.ok());
  std::vector<int64_t> followed;  // without a lock: the calls come one after the other
  ctx.executor().Run(chunks, [&](int64_t chunk) {
    if (ready(chunk)) relay->Ready(chunk, [&](int64_t c) { followed.push_back(c); });
  });
  return followed;
}

std::vector<int64_t> FirstNumbers(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(RelayTest, FollowsEveryChunkOnceInOrder) {
  for (const int64_t chunks : {1, 2, 3, 100, 10'000}) {
    testing::ForEachSetting([&](const Context& ctx) {
      EXPECT_EQ(Followed(ctx, chunks, [](int64_t) { return true; }), FirstNumbers(chunks));
    });
  }
}

TEST(RelayTest, EndsAtAChunkThatIsNeverReady) {
  testing::ForEachSetting([&](const Context& ctx) {
    EXPECT_EQ(Followed(ctx, 100, [](int64_t chunk) { return chunk != 70; }), FirstNumbers(70));
  });
}

TEST(RelayTest, TakesAnyOrder) {
  Result<Relay> relay = Relay::Make({}, 5);
  ASSERT_TRUE(relay.ok());
  std::vector<int64_t> followed;
  const auto follow = [&](int64_t chunk) { followed.push_back(chunk); };
  relay->Ready(3, follow);
  relay->Ready(1, follow);
  EXPECT_EQ(followed, FirstNumbers(0));
  relay->Ready(0, follow);
  EXPECT_EQ(followed, FirstNumbers(2));
  relay->Ready(4, follow);
  relay->Ready(2, follow);
  EXPECT_EQ(followed, FirstNumbers(5));
}

TEST(RelayTest, ReportsAFailedAllocation) {
  testing::ExpectEveryAllocationFailureIsReported({}, [](const Context& ctx) { return Relay::Make(ctx, 8).status(); });
}

}  // namespace
}  // namespace raggrad::cpu
