#include "raggrad/core/memory_budget.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace raggrad {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::atomic<size_t> available;
std::atomic<int> looks;

// Fresh pages, which nobody has written to.
class Pages {
 public:
  explicit Pages(size_t bytes)
      : bytes_(bytes), data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(data_, MAP_FAILED);
  }
  Pages(const Pages&) = delete;
  ~Pages() { munmap(data_, bytes_); }
  void Write(size_t bytes) const {
    std::memset(data_, 1, bytes);
    available -= bytes;  // as the system's figures do
  }
  const void* data() const { return data_; }

 private:
  size_t bytes_;
  void* data_;
};

class MemoryBudgetTest : public ::testing::Test {
 protected:
  MemoryBudgetTest() {
    available = 200 * kMiB;
    looks = 0;
  }
  bool Ask(const Pages& pages, size_t bytes) {
    if (!budget_.Admit(bytes)) return false;
    budget_.Granted(pages.data(), bytes);
    return true;
  }

  MemoryBudget budget_{[]() noexcept {
    ++looks;
    return available.load();
  }};
};

TEST_F(MemoryBudgetTest, BlocksThatNobodyHasWrittenToCountInSum) {
  constexpr size_t kBytes = 64 * kMiB;
  const Pages a(kBytes), b(kBytes), c(kBytes), d(kBytes);
  EXPECT_TRUE(Ask(a, kBytes));
  EXPECT_TRUE(Ask(b, kBytes));
  EXPECT_TRUE(Ask(c, kBytes));
  EXPECT_FALSE(Ask(d, kBytes));
  a.Write(kBytes);  // now the system counts it, and the budget must not count it again
  EXPECT_FALSE(Ask(d, kBytes));
  EXPECT_TRUE(Ask(d, 7 * kMiB));
  budget_.Returned(d.data(), 7 * kMiB);
  b.Write(kBytes / 2);
  EXPECT_FALSE(Ask(d, kBytes));
  budget_.Returned(c.data(), kBytes);
  EXPECT_TRUE(Ask(d, kBytes));
  EXPECT_FALSE(Ask(c, kBytes));
  budget_.Returned(a.data(), kBytes);
  available += kBytes;
  EXPECT_TRUE(Ask(c, kBytes));
}

TEST_F(MemoryBudgetTest, MoreThanThereIsIsRefusedEveryTime) {
  for (int i = 0; i < 100; ++i) {
    for (const size_t bytes : {SIZE_MAX, SIZE_MAX / 2, size_t{1} << 62, 201 * kMiB}) EXPECT_FALSE(budget_.Admit(bytes));
  }
  EXPECT_TRUE(budget_.Admit(4096));
  available = 0;
  EXPECT_FALSE(budget_.Admit(100 * kMiB));
}

TEST_F(MemoryBudgetTest, SmallRequestsLookRarely) {
  available = size_t{64} << 30;
  for (int i = 0; i < 64 * 1024; ++i) EXPECT_TRUE(budget_.Admit(4096));  // 256 MiB
  EXPECT_LE(looks, 6);
  EXPECT_GE(looks, 4);
  available = 8 * kMiB;  // the next look finds this
  int admitted = 0;
  while (budget_.Admit(1'000'000)) {
    available -= std::min<size_t>(available, 1'000'000);
    ASSERT_LT(++admitted, 80);
  }
  EXPECT_GT(looks, 6);
}

TEST_F(MemoryBudgetTest, ThreadsThatAskTogetherGetNoMoreThanOneAfterTheOther) {
  constexpr size_t kBytes = 64 * kMiB;
  std::vector<std::unique_ptr<Pages>> pages;
  for (int t = 0; t < 8; ++t) pages.push_back(std::make_unique<Pages>(kBytes));
  std::atomic<int> granted = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) threads.emplace_back([&, t] { granted += Ask(*pages[static_cast<size_t>(t)], kBytes); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(granted, 3);
}

TEST_F(MemoryBudgetTest, AFailedAllocationIsForgotten) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(budget_.Admit(150 * kMiB));
    budget_.Granted(nullptr, 150 * kMiB);
  }
}

// Such a request belongs to a thread that stayed behind in the parent.
TEST_F(MemoryBudgetTest, AChildForgetsItsParentsRequests) {
  ASSERT_TRUE(budget_.Admit(150 * kMiB));
  EXPECT_FALSE(budget_.Admit(150 * kMiB));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    _exit(budget_.Admit(150 * kMiB) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(MemoryBudgetTest, AnyNumberOfBlocks) {
  available = size_t{64} << 30;
  const Pages pages(5000 * kMiB);
  const auto* const begin = static_cast<const char*>(pages.data());
  for (size_t i = 0; i < 5000; ++i) {
    ASSERT_TRUE(budget_.Admit(kMiB));
    budget_.Granted(begin + i * kMiB, kMiB);
  }
  available = 4000 * kMiB;
  EXPECT_FALSE(budget_.Admit(100 * kMiB));
  for (size_t i = 0; i < 5000; ++i) budget_.Returned(begin + i * kMiB, kMiB);
  EXPECT_TRUE(budget_.Admit(3000 * kMiB));
}

}  // namespace
}  // namespace raggrad
