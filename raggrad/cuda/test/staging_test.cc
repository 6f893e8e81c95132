// Pinned buffers are reused, but never while the GPU reads them, and are freed when nothing needs them.
#include "raggrad/cuda/staging.cuh"

#include <set>
#include <thread>

#include "raggrad/cuda/test/parts_test.h"

namespace raggrad::cuda {
namespace {

constexpr size_t kSmall = 1000, kLarge = size_t{8} << 20;

class StagingTest : public PartsTest {
 protected:
  // Takes a buffer, writes to it and releases it to the stream; returns its address.
  void* Use(size_t bytes, cudaStream_t stream) {
    Result<Staging> staging = buffers_.Take(bytes);
    EXPECT_TRUE(staging.ok()) << staging.status().message();
    if (!staging.ok()) return nullptr;
    void* const data = staging->data();
    static_cast<char*>(data)[bytes - 1] = 1;
    const Status released = staging->Release(stream);
    EXPECT_TRUE(released.ok()) << released.message();
    return data;
  }
  // The same on the default stream, and waits until the buffer is read.
  void* UseAndWait(size_t bytes) {
    void* const data = Use(bytes, nullptr);
    Check(cudaStreamSynchronize(nullptr));
    return data;
  }

  StagingBuffers buffers_{{.idle_bytes = size_t{1} << 20, .idle_calls = 8}};
};

TEST_F(StagingTest, OneAfterTheOtherNeedsOneBuffer) {
  void* const first = UseAndWait(kSmall);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(UseAndWait(kSmall + static_cast<size_t>(i)), first);
  EXPECT_EQ(buffers_.idle_count(), 1U);
}

TEST_F(StagingTest, WhatWasNotReleasedIsFreeAtOnce) {
  void* first = nullptr;
  {
    const Result<Staging> staging = buffers_.Take(kSmall);
    ASSERT_TRUE(staging.ok());
    first = staging->data();
    EXPECT_EQ(buffers_.idle_count(), 0U);
    EXPECT_NE(UseAndWait(kSmall), first);
  }
  EXPECT_EQ(buffers_.idle_count(), 2U);
}

TEST_F(StagingTest, WhatIsNotReadIsNotUsedAgain) {
  const TestStream stream;
  Gate gate(stream);
  std::set<void*> used;
  void* const first = Use(kSmall, stream);
  used.insert(first);
  for (int i = 1; i < StagingBuffers::kMostUnread; ++i) used.insert(Use(kSmall, stream));
  EXPECT_EQ(used.size(), size_t{StagingBuffers::kMostUnread});
  // Another thread gets a buffer without waiting for this thread's stream.
  std::thread([&] { EXPECT_FALSE(used.contains(Use(kSmall, nullptr))); }).join();
  Check(cudaStreamSynchronize(nullptr));
  EXPECT_FALSE(used.contains(Use(kSmall, stream))) << "a buffer that has been read is free";
  EXPECT_FALSE(gate.open());
  const std::jthread opens = gate.OpenSoon();
  EXPECT_EQ(Use(kSmall, stream), first);  // waits until the stream has read it
  EXPECT_TRUE(gate.open());
}

TEST_F(StagingTest, LargeBuffersGoWhenTheyAreIdle) {
  UseAndWait(kLarge);
  EXPECT_GE(buffers_.idle_bytes(), kLarge);
  for (int i = 0; i < 10; ++i) UseAndWait(kSmall);
  EXPECT_LE(buffers_.idle_bytes(), size_t{1} << 20);
  EXPECT_EQ(buffers_.idle_count(), 1U);
}

TEST_F(StagingTest, LargeBuffersStayWhileTheyAreUsed) {
  void* const large = UseAndWait(kLarge);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(UseAndWait(i % 4 == 0 ? kLarge : kSmall) == large, i % 4 == 0);
  EXPECT_EQ(buffers_.idle_count(), 2U);
}

TEST_F(StagingTest, ThoseOfThreadsThatHaveEndedGo) {
  std::thread([&] { UseAndWait(kLarge); }).join();
  for (int i = 0; i < 10; ++i) UseAndWait(kSmall);
  EXPECT_LE(buffers_.idle_bytes(), size_t{1} << 20);
}

TEST_F(StagingTest, NoMemory) {
  const Result<Staging> staging = buffers_.Take(size_t{1} << 50);
  EXPECT_EQ(staging.status().code(), Code::kResourceExhausted) << staging.status().message();
  EXPECT_EQ(buffers_.idle_count(), 0U);
  UseAndWait(kSmall);
}

}  // namespace
}  // namespace raggrad::cuda
