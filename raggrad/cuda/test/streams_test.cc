// Identity of streams across handles, threads and devices; the guard of the current device.
#include "raggrad/cuda/streams.cuh"

#include <array>
#include <thread>

#include "raggrad/cuda/current_device.cuh"
#include "raggrad/cuda/test/parts_test.h"

namespace raggrad::cuda {
namespace {

using StreamsTest = PartsTest;

StreamId IdOf(cudaStream_t stream) {
  const Result<StreamId> id = Identify(stream);
  EXPECT_TRUE(id.ok()) << id.status().message();
  return id.ok() ? *id : StreamId{};
}
template <class F>
auto InAnotherThread(const F& f) {
  decltype(f()) result{};
  std::thread([&] { result = f(); }).join();
  return result;
}

TEST(ThreadNumberTest, NoTwoThreadsHaveTheSame) {
  const uint64_t here = ThreadNumber();
  EXPECT_NE(here, 0U);
  EXPECT_EQ(ThreadNumber(), here);
  // The system reuses the ids of threads that have ended.
  const uint64_t first = InAnotherThread(ThreadNumber), second = InAnotherThread(ThreadNumber);
  EXPECT_NE(first, here);
  EXPECT_NE(second, here);
  EXPECT_NE(second, first);
}

TEST_F(StreamsTest, HandlesOfOneStreamAreTheSame) {
  const TestStream stream, other;
  EXPECT_EQ(IdOf(stream), IdOf(stream));
  EXPECT_EQ(InAnotherThread([&] { return IdOf(stream); }), IdOf(stream));
  EXPECT_NE(IdOf(stream), IdOf(other));
  EXPECT_NE(IdOf(stream), IdOf(nullptr));
  EXPECT_EQ(IdOf(nullptr), IdOf(cudaStreamLegacy));
  EXPECT_EQ(InAnotherThread([] { return IdOf(nullptr); }), IdOf(nullptr));
}

TEST_F(StreamsTest, ThePerThreadStreamIsAnotherOneInEveryThread) {
  const StreamId here = IdOf(cudaStreamPerThread);
  EXPECT_EQ(IdOf(cudaStreamPerThread), here);
  EXPECT_NE(here, IdOf(nullptr));
  EXPECT_NE(InAnotherThread([] { return IdOf(cudaStreamPerThread); }), here);
}

TEST_F(StreamsTest, TheDefaultStreamIsBehindThoseOfOtherThreads) {
  const TestStream stream;
  const StreamId here = IdOf(cudaStreamPerThread), shared = IdOf(stream);
  EXPECT_EQ(BehindAllOf(here), cudaStreamPerThread);
  EXPECT_EQ(InAnotherThread([&] { return BehindAllOf(here); }), cudaStreamLegacy);
  EXPECT_EQ(InAnotherThread([&] { return BehindAllOf(shared); }), static_cast<cudaStream_t>(stream));
}

TEST_F(StreamsTest, OfEveryDevice) {
  if (devices() < 2) GTEST_SKIP() << "there is one GPU";
  const StreamId first = IdOf(nullptr);
  const TestStream of_first;
  const CurrentDevice second(1);
  EXPECT_EQ(IdOf(nullptr).device, 1);
  EXPECT_NE(IdOf(nullptr), first);
  EXPECT_EQ(IdOf(of_first).device, 0);
}

TEST_F(StreamsTest, IsCaptured) {
  const TestStream stream;
  EXPECT_EQ(*IsCaptured(stream), false);
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_EQ(*IsCaptured(stream), true);
  EXPECT_EQ(*IsCaptured(nullptr), false);  // a non-blocking stream does not involve the default stream
  cudaGraph_t graph = nullptr;
  Check(cudaStreamEndCapture(stream, &graph));
  Check(cudaGraphDestroy(graph));
  EXPECT_EQ(*IsCaptured(stream), false);
}

int Current() {
  int device = -1;
  Check(cudaGetDevice(&device));
  return device;
}

TEST_F(StreamsTest, TheCurrentDeviceIsRestored) {
  const int before = Current();
  for (int device = 0; device < devices(); ++device) {
    const CurrentDevice guard(device);
    EXPECT_EQ(Current(), device);
    const CurrentDevice inner(before);
    EXPECT_EQ(Current(), before);
  }
  EXPECT_EQ(Current(), before);
  {
    const CurrentDevice there_is_none(devices());
    EXPECT_EQ(Current(), before);
  }
  EXPECT_EQ(Current(), before);
}

}  // namespace
}  // namespace raggrad::cuda
