// Pinned words and tokens: a thread never takes another thread's report for its own.
#include "raggrad/cuda/pinned_words.cuh"

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

#include "raggrad/cuda/test/parts_test.h"

namespace raggrad::cuda {
namespace {

using PinnedWordsTest = PartsTest;

TEST(NewTokenTest, NoTwoCallsHaveTheSame) {
  constexpr int kThreads = 16, kCalls = 100;
  std::vector<std::vector<uint64_t>> tokens(kThreads);
  {
    std::vector<std::jthread> threads;
    for (auto& mine : tokens) {
      threads.emplace_back([&mine] {
        for (int i = 0; i < kCalls; ++i) mine.push_back(NewToken());
      });
    }
  }
  std::set<uint64_t> all;
  for (const auto& mine : tokens) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), size_t{kThreads * kCalls});
  EXPECT_FALSE(all.contains(0));
}

TEST_F(PinnedWordsTest, AreZeroForEveryThreadThoughTheyAreUsedAgain) {
  std::set<uint64_t*> blocks;
  for (int i = 0; i < 20; ++i) {
    std::thread([&] {
      uint64_t* const words = PinnedWords();
      ASSERT_NE(words, nullptr);
      EXPECT_EQ(PinnedWords(), words);
      EXPECT_TRUE(std::all_of(words, words + kWords, [](uint64_t word) { return word == 0; }));
      std::fill_n(words, kWords, ~uint64_t{0});
      blocks.insert(words);
    }).join();
  }
  EXPECT_EQ(blocks.size(), 1U) << "threads that came one after the other did not share a block";
}

TEST_F(PinnedWordsTest, ThreadsAtTheSameTimeHaveTheirOwn) {
  uint64_t* const here = PinnedWords();
  uint64_t* there = nullptr;
  std::thread([&] { there = PinnedWords(); }).join();
  EXPECT_NE(there, nullptr);
  EXPECT_NE(there, here);
}

}  // namespace
}  // namespace raggrad::cuda
