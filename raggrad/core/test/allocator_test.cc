#include "raggrad/core/allocator.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "raggrad/core/pool_allocator.h"

namespace raggrad {
namespace {

bool Aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % Allocator::kAlignment == 0; }

// Sizes around the limits between small, aligned and large blocks.
constexpr size_t kSizes[] = {1,      15, 16, 64, 2047, 2048, 2049, 4096, 1 << 20, (4 << 20) - 1, 4 << 20, (4 << 20) + 1,
                             9 << 20};

TEST(DefaultAllocator, AllSizesAreAlignedAndWritable) {
  for (const size_t bytes : kSizes) {
    void* pointer = DefaultAllocator().Allocate(bytes);
    ASSERT_NE(pointer, nullptr) << bytes;
    EXPECT_TRUE(Aligned(pointer)) << bytes;
    std::memset(pointer, 0xA5, bytes);
    DefaultAllocator().Deallocate(pointer, bytes);
  }
}

TEST(DefaultAllocator, RefusesMoreThanTheMachineHas) {
  EXPECT_EQ(DefaultAllocator().Allocate(SIZE_MAX), nullptr);
  EXPECT_EQ(DefaultAllocator().Allocate(size_t{1} << 62), nullptr);
}

TEST(PoolAllocator, ReusesALargeBlock) {
  PoolAllocator pool;
  void* first = pool.Allocate(5'000'000);
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(Aligned(first));
  std::memset(first, 1, 5'000'000);
  pool.Deallocate(first, 5'000'000);
  EXPECT_EQ(pool.idle_bytes(), PoolAllocator::BlockBytes(5'000'000));
  void* second = pool.Allocate(4'900'000);  // of the same class
  EXPECT_EQ(second, first);
  EXPECT_EQ(pool.idle_bytes(), 0U);
  void* third = pool.Allocate(4'900'000);
  EXPECT_NE(third, second);
  pool.Deallocate(second, 4'900'000);
  pool.Deallocate(third, 4'900'000);
}

TEST(PoolAllocator, SmallAndOtherSizesGoToUpstream) {
  PoolAllocator pool;
  void* small = pool.Allocate(1000);
  pool.Deallocate(small, 1000);
  EXPECT_EQ(pool.idle_bytes(), 0U);
  void* large = pool.Allocate(3 << 20);
  pool.Deallocate(large, 3 << 20);
  void* larger = pool.Allocate(6 << 20);
  EXPECT_EQ(pool.idle_bytes(), size_t{3} << 20);
  pool.Deallocate(larger, 6 << 20);
}

TEST(PoolAllocator, KeepsAtMostTheLimit) {
  PoolAllocator pool(size_t{10} << 20);
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(pool.Allocate(4 << 20));
  for (void* block : blocks) pool.Deallocate(block, 4 << 20);
  EXPECT_EQ(pool.idle_bytes(), size_t{8} << 20);
  EXPECT_EQ(pool.Allocate(4 << 20), blocks[4]);  // the four older ones were freed
  pool.Deallocate(blocks[4], 4 << 20);
  void* huge = pool.Allocate(11 << 20);
  pool.Deallocate(huge, 11 << 20);
  EXPECT_EQ(pool.idle_bytes(), size_t{8} << 20);
  pool.SetMaxIdleBytes(5 << 20);
  EXPECT_EQ(pool.idle_bytes(), size_t{4} << 20);
  pool.SetMaxIdleBytes(0);
  EXPECT_EQ(pool.idle_bytes(), 0U);
}

TEST(PoolAllocator, HoldsAtMost32Blocks) {
  PoolAllocator pool(SIZE_MAX);
  std::vector<void*> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(pool.Allocate(1 << 20));
  for (void* block : blocks) pool.Deallocate(block, 1 << 20);
  EXPECT_EQ(pool.idle_bytes(), size_t{32} << 20);
}

// A heap of limited size.
class SmallHeap final : public Allocator {
 public:
  explicit SmallHeap(size_t room) : room_(room) {}
  void* Allocate(size_t bytes) noexcept override {
    if (bytes > room_) return nullptr;
    room_ -= bytes;
    return DefaultAllocator().Allocate(bytes);
  }
  void Deallocate(void* pointer, size_t bytes) noexcept override {
    room_ += bytes;
    DefaultAllocator().Deallocate(pointer, bytes);
  }

 private:
  size_t room_;
};

TEST(PoolAllocator, FreesIdleBlocksBeforeItRefuses) {
  SmallHeap heap(size_t{10} << 20);
  PoolAllocator pool(size_t{256} << 20, heap);
  for (const size_t wanted : {size_t{7} << 20, size_t{1000}}) {  // a size that is pooled and one that is not
    std::vector<void*> blocks;
    for (int i = 0; i < 2; ++i) blocks.push_back(pool.Allocate(5 << 20));
    for (void* block : blocks) pool.Deallocate(block, 5 << 20);
    ASSERT_EQ(pool.idle_bytes(), size_t{10} << 20);
    void* large = pool.Allocate(wanted);
    ASSERT_NE(large, nullptr);
    EXPECT_EQ(pool.idle_bytes(), 0U);
    EXPECT_EQ(pool.Allocate(11 << 20), nullptr);
    pool.Deallocate(large, wanted);
    pool.SetMaxIdleBytes(0);
    pool.SetMaxIdleBytes(size_t{256} << 20);
  }
}

TEST(PoolAllocator, RoundsUpByLessThanAnEighth) {
  for (size_t bytes = PoolAllocator::kLeast; bytes < SIZE_MAX / 2; bytes += bytes / 3 + 7) {
    const size_t block = PoolAllocator::BlockBytes(bytes);
    EXPECT_GE(block, bytes);
    EXPECT_LT(block - bytes, bytes / 8 + 1);
    EXPECT_EQ(PoolAllocator::BlockBytes(block), block);
  }
  EXPECT_EQ(PoolAllocator::BlockBytes(SIZE_MAX), SIZE_MAX);
  EXPECT_EQ(PoolAllocator::BlockBytes(100), 100U);
  EXPECT_EQ(PoolAllocator(1 << 30).Allocate(SIZE_MAX), nullptr);
}

TEST(PoolAllocator, ManyThreads) {
  PoolAllocator pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 200; ++i) {
        const size_t bytes = (size_t{1} << 20) + static_cast<size_t>(t % 3) * 300'000;
        auto* data = static_cast<unsigned char*>(pool.Allocate(bytes));
        ASSERT_NE(data, nullptr);
        data[0] = data[bytes - 1] = static_cast<unsigned char>(t);
        std::this_thread::yield();
        ASSERT_EQ(data[0], t);
        ASSERT_EQ(data[bytes - 1], t);
        pool.Deallocate(data, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace raggrad
