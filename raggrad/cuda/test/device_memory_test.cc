// The library's own pool of device memory: what it allocates, and in which order it frees.
#include "raggrad/cuda/device_memory.cuh"

#include <array>
#include <thread>
#include <vector>

#include "raggrad/cuda/current_device.cuh"
#include "raggrad/cuda/stream_pool.cuh"
#include "raggrad/cuda/streams.cuh"
#include "raggrad/cuda/test/parts_test.h"

namespace raggrad::cuda {
namespace {

using DeviceMemoryTest = PartsTest;
using StreamPoolTest = PartsTest;

constexpr size_t kBytes = size_t{1} << 20;

std::vector<unsigned char> Read(const void* memory, cudaStream_t stream) {
  std::vector<unsigned char> bytes(kBytes);
  Check(cudaMemcpyAsync(bytes.data(), memory, kBytes, cudaMemcpyDeviceToHost, stream));
  Check(cudaStreamSynchronize(stream));
  return bytes;
}
std::vector<unsigned char> All(unsigned char byte) { return std::vector<unsigned char>(kBytes, byte); }

uint64_t DefaultPoolHas(cudaMemPoolAttr attribute) {
  cudaMemPool_t pool = nullptr;
  uint64_t value = 0;
  Check(cudaDeviceGetDefaultMemPool(&pool, 0));
  Check(cudaMemPoolGetAttribute(pool, attribute, &value));
  return value;
}
void SetDefaultPoolThreshold(uint64_t bytes) {
  cudaMemPool_t pool = nullptr;
  Check(cudaDeviceGetDefaultMemPool(&pool, 0));
  Check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &bytes));
}

TEST_F(DeviceMemoryTest, IsMemory) {
  const TestStream stream;
  for (const auto pooled : {DeviceMemory::Pooled::kIfSupported, DeviceMemory::Pooled::kNever}) {
    Result<DeviceMemory> memory = DeviceMemory::Make(0, pooled);
    ASSERT_TRUE(memory.ok()) << memory.status().message();
    if (pooled == DeviceMemory::Pooled::kNever) {
      EXPECT_FALSE(memory->pooled());
    }
    for (const unsigned char byte : {uint8_t{0x11}, uint8_t{0x22}}) {
      void* const block = memory->Allocate(kBytes, stream);
      ASSERT_NE(block, nullptr);
      Check(cudaMemsetAsync(block, byte, kBytes, stream));
      EXPECT_EQ(Read(block, stream), All(byte));
      memory->Free(block, stream);
    }
    EXPECT_EQ(memory->Allocate(size_t{1} << 50, stream), nullptr);
  }
}

TEST_F(DeviceMemoryTest, LeavesTheDefaultPoolAlone) {
  const auto attributes = [] {
    return std::array{DefaultPoolHas(cudaMemPoolAttrReleaseThreshold), DefaultPoolHas(cudaMemPoolAttrUsedMemHigh),
                      DefaultPoolHas(cudaMemPoolAttrReservedMemHigh)};
  };
  const uint64_t threshold = DefaultPoolHas(cudaMemPoolAttrReleaseThreshold);
  SetDefaultPoolThreshold(size_t{3} << 20);  // as a host program may; what earlier tests left there hides nothing
  const auto before = attributes();
  Result<DeviceMemory> memory = DeviceMemory::Make(0, DeviceMemory::Pooled::kIfSupported);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  const TestStream stream;
  void* const block = memory->Allocate(kBytes, stream);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(attributes(), before);
  memory->Free(block, stream);
  EXPECT_EQ(attributes(), before);
  SetDefaultPoolThreshold(threshold);
}

TEST_F(DeviceMemoryTest, OneForEveryDevice) {
  const Result<DeviceMemory*> memory = DeviceMemory::Of(0);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  EXPECT_EQ(*DeviceMemory::Of(0), *memory);
}

// Queued work may still use the memory. Without a pool, Free has to wait for it.
TEST_F(DeviceMemoryTest, GoesBackInTheOrderOfTheStream) {
  Result<DeviceMemory> memory = DeviceMemory::Make(0, DeviceMemory::Pooled::kNever);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  const TestStream stream;
  void* const block = memory->Allocate(kBytes, stream);
  Gate gate(stream);
  Check(cudaMemsetAsync(block, 1, kBytes, stream));
  const std::jthread opens = gate.OpenSoon();
  memory->Free(block, stream);
  EXPECT_TRUE(gate.open());
}

Allocator& PoolHere(cudaStream_t stream) {
  const Result<StreamId> id = Identify(stream);
  EXPECT_TRUE(id.ok()) << id.status().message();
  const Result<Allocator*> pool = PoolOf(*id);
  EXPECT_TRUE(pool.ok()) << pool.status().message();
  return **pool;
}

TEST_F(StreamPoolTest, OneForEveryStream) {
  const TestStream stream, other;
  EXPECT_EQ(&PoolHere(stream), &PoolHere(stream));
  EXPECT_NE(&PoolHere(stream), &PoolHere(other));
  EXPECT_EQ(&PoolHere(nullptr), &PoolHere(cudaStreamLegacy));
}

// One thread frees a block while another thread's stream has still to write it. The pool must not hand the block out
// again before that write.
TEST_F(StreamPoolTest, MemoryOfAPerThreadStreamGivenBackByAnotherThread) {
  Allocator& pool = PoolHere(cudaStreamPerThread);
  std::atomic<void*> block = nullptr;
  std::atomic<bool> dropped = false;
  std::thread maker([&] {
    Gate gate(cudaStreamPerThread);
    void* const made = pool.Allocate(kBytes);
    Check(cudaMemsetAsync(made, 0xaa, kBytes, cudaStreamPerThread));
    block = made;
    block.notify_all();
    dropped.wait(false);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gate.Open();
    Check(cudaStreamSynchronize(cudaStreamPerThread));
  });
  block.wait(nullptr);
  pool.Deallocate(block, kBytes);
  void* const next = pool.Allocate(kBytes);
  Check(cudaMemsetAsync(next, 0x55, kBytes, cudaStreamPerThread));
  dropped = true;
  dropped.notify_all();
  maker.join();
  EXPECT_EQ(Read(next, cudaStreamPerThread), All(0x55));
  pool.Deallocate(next, kBytes);
}

TEST_F(StreamPoolTest, GivenBackWhileAnotherDeviceIsTheCurrentOne) {
  if (devices() < 2) GTEST_SKIP() << "there is one GPU";
  Allocator& pool = PoolHere(nullptr);
  Gate gate(nullptr);
  void* const block = pool.Allocate(kBytes);
  Check(cudaMemsetAsync(block, 0xaa, kBytes, nullptr));
  {
    const CurrentDevice other(1);
    pool.Deallocate(block, kBytes);
    void* const next = pool.Allocate(kBytes);  // is still on the first device
    cudaPointerAttributes attributes = {};
    Check(cudaPointerGetAttributes(&attributes, next));
    EXPECT_EQ(attributes.device, 0);
    pool.Deallocate(next, kBytes);
  }
  gate.Open();
  Check(cudaDeviceSynchronize());
}

}  // namespace
}  // namespace raggrad::cuda
