// Limits, expiry, closing, their counters, callbacks that call the runtime, and the threads of many resources.
#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <thread>

#include "raggrad/ops/batching/test/test_calls.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

using ::testing::_;
using ::testing::HasSubstr;

constexpr auto kGrad = ResourceKind::kUnbatchGrad;
const ResourceName kName{"", "r"};

ResourceStatistics StatisticsOf(const BatchingRuntime& runtime, ResourceKind kind = kGrad) {
  const auto statistics = runtime.Statistics(kind, kName);
  EXPECT_THAT(statistics, IsOk());
  return statistics.ok() ? *statistics : ResourceStatistics{};
}

// Waits until the condition holds; false if it does not within a minute.
bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 60'000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

GradOperands Piece(int64_t id) { return {id, FloatPiece(1, 2, static_cast<float>(id))}; }

TEST(BatchingLimitsTest, Pieces) {
  BatchingRuntime runtime({}, {.max_pieces = 2});
  EXPECT_THAT(runtime.UnbatchGrad(Piece(1).call()), IsOk());
  EXPECT_THAT(runtime.UnbatchGrad(Piece(2).call()), IsOk());
  EXPECT_THAT(runtime.UnbatchGrad(Piece(3).call()), StatusIs(Code::kResourceExhausted, HasSubstr("pieces")));
  // An owner whose pieces are all there makes room, so it is served even at the limit.
  EXPECT_THAT(runtime.UnbatchGrad(GradOperands(9, FloatPiece(1, 2, 0), {9, 1, 2}).call()), IsOk());
  EXPECT_THAT(runtime.UnbatchGrad(Piece(3).call()), IsOk());
  const ResourceStatistics statistics = StatisticsOf(runtime);
  EXPECT_EQ(statistics.refused, 1);
  EXPECT_EQ(statistics.failed, 1);
  EXPECT_EQ(statistics.calls, 5);
  EXPECT_EQ(statistics.pieces, 1);
}

TEST(BatchingLimitsTest, AreTheRuntimesUntilTheyAreSet) {
  BatchingRuntime runtime({}, {.max_pieces = 2, .default_timeout = WaitTime(5)});
  EXPECT_THAT(runtime.Limits(kGrad, kName), StatusIs(Code::kNotFound, _));
  EXPECT_THAT(runtime.UnbatchGrad(Piece(1).call()), IsOk());
  ASSERT_THAT(runtime.Limits(kGrad, kName), IsOk());
  EXPECT_EQ(runtime.Limits(kGrad, kName)->max_pieces, 2);
  EXPECT_THAT(runtime.SetLimits(kGrad, kName, {.max_pieces = 3}), IsOk());
  EXPECT_EQ(runtime.Limits(kGrad, kName)->max_pieces, 3);
  EXPECT_EQ(runtime.Limits(kGrad, kName)->default_timeout, ResourceLimits().default_timeout);
  // An Unbatch resource has the timeout_micros of the call that makes it, if that is set.
  const GradOperands nothing(1, FloatPiece(0, 2, 0));
  UnbatchCall call{kName, nothing.grad().view(), nothing.call().batch_index, nothing.call().id};
  EXPECT_THAT(runtime.Unbatch(call), StatusIs(Code::kDeadlineExceeded, _));
  EXPECT_EQ(runtime.Limits(ResourceKind::kUnbatch, kName)->default_timeout, WaitTime(5));
  call.resource.name = "u";
  call.timeout_micros = 7;
  EXPECT_THAT(runtime.Unbatch(call), StatusIs(Code::kDeadlineExceeded, _));
  EXPECT_EQ(runtime.Limits(ResourceKind::kUnbatch, call.resource)->max_piece_age, WaitTime(7));
}

TEST(BatchingLimitsTest, TheLastPieceOfABatchIsNeverRefused) {
  CallLog<Tensor> log;
  BatchingRuntime runtime({}, {.max_pieces = 2});
  runtime.UnbatchGradAsync(GradOperands(9, FloatPiece(1, 2, 0), {9, 1, 2}).call(), log.Record(9));
  EXPECT_THAT(runtime.UnbatchGrad(Piece(1).call()), IsOk());
  EXPECT_THAT(runtime.UnbatchGrad(Piece(5).call()), StatusIs(Code::kResourceExhausted, _));
  EXPECT_THAT(runtime.UnbatchGrad(Piece(2).call()), IsOk());
  ASSERT_NE(log.Find(9), nullptr);
  EXPECT_THAT(*log.Find(9), IsOk());
}

TEST(BatchingLimitsTest, Bytes) {
  BatchingRuntime runtime({}, {.max_bytes = 20});
  EXPECT_THAT(runtime.UnbatchGrad(Piece(1).call()), IsOk());  // 8 bytes
  EXPECT_THAT(runtime.UnbatchGrad(Piece(2).call()), IsOk());
  EXPECT_THAT(runtime.UnbatchGrad(Piece(3).call()), StatusIs(Code::kResourceExhausted, HasSubstr("bytes")));
  EXPECT_THAT(runtime.UnbatchGrad(GradOperands(4, FloatPiece(0, 2, 0)).call()), IsOk()) << "it has no bytes";
  EXPECT_EQ(StatisticsOf(runtime).bytes, 16);
  EXPECT_EQ(StatisticsOf(runtime).pieces, 3);
}

TEST(BatchingLimitsTest, Waiters) {
  CallLog<Tensor> log;
  BatchingRuntime runtime({}, {.max_waiters = 1});
  runtime.UnbatchGradAsync(GradOperands(1, FloatPiece(1, 2, 0), {1, 2}).call(), log.Record(1));
  EXPECT_THAT(runtime.UnbatchGrad(GradOperands(3, FloatPiece(1, 2, 0), {3, 4}).call()),
              StatusIs(Code::kResourceExhausted, HasSubstr("waiting calls")));
  EXPECT_EQ(StatisticsOf(runtime).waiters, 1);
  EXPECT_EQ(StatisticsOf(runtime).pieces, 1) << "the refused call left a piece";
  EXPECT_THAT(runtime.UnbatchGrad(Piece(2).call()), IsOk());
  EXPECT_EQ(StatisticsOf(runtime).waiters, 0);
}

TEST(BatchingLimitsTest, OfUnbatchAndBatch) {
  CallLog<Tensor> log;
  CallLog<BatchOutput> batch_log;
  BatchingRuntime runtime({}, {.max_pieces = 1, .max_waiters = 1});
  const Tensor rows = TensorOf<float>({1, 2, 3}, Shape{3, 1});
  const auto index = Index({1, 2, 3});
  const int64_t one = 1, seven = 7, eight = 8;
  const Tensor none = TensorOf<float>({}, Shape{0, 1});
  const auto no_index = Index({});
  const auto call = [&](const Tensor& data, const Tensor& keys, const int64_t& id) {
    return UnbatchCall{kName, data.view(), keys.view(), TensorView::Scalar(id), 1'000'000'000};
  };
  EXPECT_THAT(runtime.Unbatch(call(rows, *index, one)), StatusIs(Code::kResourceExhausted, HasSubstr("pieces")));
  runtime.UnbatchAsync(call(none, *no_index, seven), log.Record(7));
  EXPECT_THAT(runtime.Unbatch(call(none, *no_index, eight)), StatusIs(Code::kResourceExhausted, HasSubstr("waiting")));

  const BatchCall batch{
      .resource = kName, .in_tensors = {{rows.view()}}, .max_batch_size = 6, .batch_timeout_micros = 1'000'000'000};
  runtime.BatchAsync(batch, batch_log.Record(0));
  BatchCall small = batch;
  const Tensor row = TensorOf<float>({1}, Shape{1, 1});
  small.in_tensors = {{row.view()}};
  EXPECT_THAT(runtime.Batch(small), StatusIs(Code::kResourceExhausted, _));
  EXPECT_THAT(runtime.Batch(batch), IsOk()) << "it completes the batch";
  EXPECT_NE(batch_log.Find(0), nullptr);
}

TEST(BatchingLimitsTest, UnclaimedPiecesExpire) {
  BatchingRuntime runtime({}, {.max_piece_age = std::chrono::milliseconds(30)});
  for (int64_t id = 0; id < 100; ++id) EXPECT_THAT(runtime.UnbatchGrad(Piece(id).call()), IsOk());
  EXPECT_TRUE(Eventually([&] { return StatisticsOf(runtime).pieces == 0; }));
  EXPECT_EQ(StatisticsOf(runtime).pieces_expired, 100);
  EXPECT_EQ(StatisticsOf(runtime).bytes, 0);
  EXPECT_THAT(runtime.UnbatchGrad(Piece(1).call()), IsOk()) << "the key is free again";
  EXPECT_TRUE(Eventually([&] { return StatisticsOf(runtime).pieces_expired == 101; }));
}

TEST(BatchingLimitsTest, APieceThatAnOwnerWaitsForDoesNotExpire) {
  CallLog<Tensor> log;
  BatchingRuntime runtime({}, {.max_piece_age = std::chrono::milliseconds(20)});
  runtime.UnbatchGradAsync(GradOperands(9, FloatPiece(1, 2, 0), {9, 1, 2}).call(), log.Record(9));
  EXPECT_THAT(runtime.UnbatchGrad(Piece(1).call()), IsOk());
  EXPECT_THAT(runtime.UnbatchGrad(Piece(5).call()), IsOk());
  EXPECT_TRUE(Eventually([&] { return StatisticsOf(runtime).pieces_expired == 1; }));
  EXPECT_THAT(runtime.UnbatchGrad(Piece(2).call()), IsOk());
  ASSERT_NE(log.Find(9), nullptr);
  EXPECT_THAT(*log.Find(9), IsOk());
}

TEST(BatchingLimitsTest, NewLimitsApplyToStoredPieces) {
  BatchingRuntime runtime({}, {.max_piece_age = kNoDeadline});
  EXPECT_THAT(runtime.SetLimits(kGrad, kName, {}), StatusIs(Code::kNotFound, _));
  EXPECT_THAT(runtime.UnbatchGrad(Piece(1).call()), IsOk());
  EXPECT_THAT(runtime.SetLimits(kGrad, kName, {.max_piece_age = WaitTime(0)}), IsOk());
  EXPECT_EQ(StatisticsOf(runtime).pieces, 0);
  EXPECT_EQ(StatisticsOf(runtime).pieces_expired, 1);
  EXPECT_THAT(runtime.SetLimits(kGrad, kName, {.default_timeout = WaitTime(1000)}), IsOk());
  EXPECT_THAT(runtime.UnbatchGrad(GradOperands(1, FloatPiece(1, 2, 0), {1, 2}).call()),
              StatusIs(Code::kDeadlineExceeded, HasSubstr("did not arrive within timeout window")));
  EXPECT_EQ(StatisticsOf(runtime).deadline_exceeded, 1);
}

TEST(BatchingLimitsTest, FailedCallsKeepNothing) {
  BatchingRuntime runtime;
  EXPECT_THAT(runtime.UnbatchGrad(Piece(1).call()), IsOk());
  GradOperands bad(2, FloatPiece(1000, 64, 0), {2});
  bad.SetIndex(std::make_shared<const Tensor>(TensorOf<int64_t>({1, 2}, Shape{1, 2})));
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(runtime.UnbatchGrad(bad.call()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(StatisticsOf(runtime).pieces, 1);
  EXPECT_EQ(StatisticsOf(runtime).failed, 1000);
}

TEST(BatchingCloseTest, EndsWaitsAndForgetsPieces) {
  CallLog<Tensor> log;
  BatchingRuntime runtime;
  EXPECT_THAT(runtime.Close(kGrad, kName), StatusIs(Code::kNotFound, _));
  EXPECT_THAT(runtime.UnbatchGrad(Piece(5).call()), IsOk());
  runtime.UnbatchGradAsync(GradOperands(1, FloatPiece(1, 2, 0), {1, 2}).call(), log.Record(1));
  EXPECT_THAT(runtime.Close(kGrad, kName), IsOk());
  ASSERT_NE(log.Find(1), nullptr);
  EXPECT_THAT(*log.Find(1), StatusIs(Code::kCancelled, HasSubstr("closed")));
  EXPECT_THAT(runtime.Statistics(kGrad, kName), StatusIs(Code::kNotFound, _));
  EXPECT_THAT(runtime.UnbatchGrad(Piece(5).call()), IsOk());
}

TEST(BatchingCloseTest, TheDestructorCompletesAllCalls) {
  CallLog<Tensor> log;
  {
    BatchingRuntime runtime;
    for (int i = 0; i < 10; ++i) {
      runtime.UnbatchGradAsync(GradOperands(i, FloatPiece(1, 2, 0), {i, 100 + i}).call(), log.Record(i));
    }
  }
  EXPECT_EQ(log.size(), 10U);
}

// Callbacks run without a lock, so they may call the runtime.
TEST(BatchingCallbackTest, MayCallTheSameResource) {
  CallLog<Tensor> log;
  BatchingRuntime runtime;
  const GradOperands next = Piece(3);
  const GradOperands second(4, FloatPiece(1, 2, 0), {4, 3});
  const auto chain = [&](const Result<Tensor>& result) {
    EXPECT_THAT(result, IsOk());
    EXPECT_EQ(StatisticsOf(runtime).waiters, 0);
    runtime.UnbatchGradAsync(second.call(), log.Record(4));
    EXPECT_THAT(runtime.UnbatchGrad(next.call()), IsOk());
  };
  runtime.UnbatchGradAsync(GradOperands(1, FloatPiece(1, 2, 0), {1, 2}).call(), chain);
  EXPECT_THAT(runtime.UnbatchGrad(Piece(2).call()), IsOk());
  ASSERT_NE(log.Find(4), nullptr);
  EXPECT_THAT(*log.Find(4), IsOk());
}

TEST(BatchingCallbackTest, MayCloseItsResource) {
  BatchingRuntime runtime;
  CallLog<Tensor> log;
  runtime.UnbatchGradAsync(GradOperands(1, FloatPiece(1, 2, 0), {1, 2}).call(), [&](const Result<Tensor>& result) {
    EXPECT_THAT(result, IsOk());
    EXPECT_THAT(runtime.Close(kGrad, kName), IsOk());
  });
  runtime.UnbatchGradAsync(GradOperands(5, FloatPiece(1, 2, 0), {5, 6}).call(), log.Record(5));
  EXPECT_THAT(runtime.UnbatchGrad(Piece(2).call()), IsOk());
  ASSERT_NE(log.Find(5), nullptr);
  EXPECT_THAT(*log.Find(5), StatusIs(Code::kCancelled, _));
}

TEST(BatchingCallbackTest, MayBeEmpty) {
  BatchingRuntime runtime;
  runtime.UnbatchGradAsync(Piece(1).call(), nullptr);
  runtime.UnbatchGradAsync(GradOperands(2, FloatPiece(1, 2, 0), {2, 3}).call(), nullptr);
  EXPECT_EQ(StatisticsOf(runtime).succeeded, 1);
}

TEST(BatchingThreadsTest, ThousandsOfResourcesStartOneThread) {
  const auto threads = [] {
    using Iterator = std::filesystem::directory_iterator;
    return std::distance(Iterator("/proc/self/task"), Iterator());
  };
  CallLog<Tensor> log;
  const auto before = threads();
  {
    BatchingRuntime runtime;
    GradOperands owner(1, FloatPiece(1, 2, 0), {1, 2});
    for (int i = 0; i < 5000; ++i) {
      owner.call().resource.name = std::to_string(i);
      runtime.UnbatchGradAsync(owner.call(), log.Record(i));
    }
    EXPECT_EQ(threads(), before + 1);
  }
  EXPECT_EQ(log.size(), 5000U);
  EXPECT_EQ(threads(), before);
}

}  // namespace
}  // namespace raggrad::testing
