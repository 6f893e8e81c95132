// Whichever request for memory fails, the call succeeds or ends with RESOURCE_EXHAUSTED, and no exception leaves the
// library. A failed call leaves no trace: if it is made again, it succeeds.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "raggrad/ops/batching/test/test_calls.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/failing_new.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

const ResourceName kName{"", "r"};

// The end of a call. Recording it needs no memory.
struct Outcome {
  int completions = 0;
  Code code = Code::kOk;
};

template <class T>
Completion<T> RecordIn(Outcome& outcome) {
  return [&outcome](const Result<T>& result) {
    ++outcome.completions;
    outcome.code = result.status().code();
  };
}

// The numbers that a failed call must not change.
std::vector<int64_t> Contents(const BatchingRuntime& runtime, ResourceKind kind) {
  const auto statistics = runtime.Statistics(kind, kName);
  if (!statistics.ok()) return {0, 0, 0};
  return {statistics->pieces, statistics->bytes, statistics->waiters};
}

// A call that `act` starts in a runtime prepared by `prepare`. It is made with every single request for memory failing,
// and made again after each failure.
struct Case {
  ResourceKind kind;
  std::function<void(BatchingRuntime&)> prepare;
  std::function<void(BatchingRuntime&, Outcome&)> act;
  bool waits = false;  // otherwise the call ends at once
};

void ExpectNoTrace(const Case& c) {
  for (const Failing when : {Failing::kOnce, Failing::kFromThenOn}) {
    for (int64_t at = 0;; ++at) {
      SCOPED_TRACE("request " + std::to_string(at) + (when == Failing::kOnce ? " fails" : " and all later ones fail"));
      Outcome outcome, again;  // outlive the runtime
      BatchingRuntime runtime;
      c.prepare(runtime);
      const std::vector<int64_t> before = Contents(runtime, c.kind);
      {
        const ScopedFailure failure(when, at);
        c.act(runtime, outcome);
      }
      const bool exhausted = outcome.completions == 1 && outcome.code == Code::kResourceExhausted;
      if (exhausted) {
        EXPECT_EQ(Contents(runtime, c.kind), before);
        c.act(runtime, again);
        EXPECT_EQ(again.completions, c.waits ? 0 : 1);
        EXPECT_EQ(again.code, Code::kOk);
      } else {
        EXPECT_EQ(outcome.completions, c.waits ? 0 : 1);
        EXPECT_EQ(outcome.code, Code::kOk);
      }
      if (RequestsOfNew() <= at) {
        EXPECT_FALSE(exhausted);
        EXPECT_GT(at, 0) << "no memory was requested: is operator new replaced?";
        break;
      }
    }
  }
}

void Nothing(BatchingRuntime& /*runtime*/) {}

TEST(BatchingNoThrowTest, APieceThatIsStored) {
  const GradOperands piece(1, FloatPiece(1, 2, 0));
  ExpectNoTrace({ResourceKind::kUnbatchGrad, Nothing, [&](BatchingRuntime& runtime, Outcome& outcome) {
                   runtime.UnbatchGradAsync(piece.call(), RecordIn<Tensor>(outcome));
                 }});
}

TEST(BatchingNoThrowTest, AnOwnerThatWaits) {
  const GradOperands piece(2, FloatPiece(1, 2, 0));
  const Cancellation token;
  for (const std::vector<int64_t>& keys : {std::vector<int64_t>{1, 2, 3, 4}, std::vector<int64_t>{2, 3}}) {
    GradOperands owner(1, FloatPiece(1, 2, 0), keys);  // with the second keys it is not in its own index
    owner.call().waiting.cancellation = token;
    ExpectNoTrace({ResourceKind::kUnbatchGrad,
                   [&](BatchingRuntime& runtime) { EXPECT_THAT(runtime.UnbatchGrad(piece.call()), IsOk()); },
                   [&](BatchingRuntime& runtime, Outcome& outcome) {
                     runtime.UnbatchGradAsync(owner.call(), RecordIn<Tensor>(outcome));
                   },
                   /*waits=*/true});
  }
}

TEST(BatchingNoThrowTest, APieceForAnOwnerThatWaits) {
  const GradOperands owner(1, FloatPiece(1, 2, 0), {1, 2, 3});
  const GradOperands piece(2, FloatPiece(1, 2, 0));
  ExpectNoTrace(
      {ResourceKind::kUnbatchGrad,
       [&](BatchingRuntime& runtime) { runtime.UnbatchGradAsync(owner.call(), [](const Result<Tensor>&) {}); },
       [&](BatchingRuntime& runtime, Outcome& outcome) {
         runtime.UnbatchGradAsync(piece.call(), RecordIn<Tensor>(outcome));
       }});
}

// A batch that cannot be joined is dropped. Its owner gets the error, the call that brought the last piece does not.
TEST(BatchingNoThrowTest, TheLastPieceForAnOwnerThatWaits) {
  for (int64_t at = 0;; ++at) {
    SCOPED_TRACE("request " + std::to_string(at) + " fails");
    Outcome owner, piece;
    BatchingRuntime runtime;
    const GradOperands first(1, FloatPiece(1, 2, 0), {1, 2});
    const GradOperands last(2, FloatPiece(1, 2, 0));
    runtime.UnbatchGradAsync(first.call(), RecordIn<Tensor>(owner));
    {
      const ScopedFailure failure(Failing::kOnce, at);
      runtime.UnbatchGradAsync(last.call(), RecordIn<Tensor>(piece));
    }
    ASSERT_EQ(piece.completions, 1);
    if (piece.code == Code::kResourceExhausted) {
      EXPECT_EQ(owner.completions, 0);
      EXPECT_EQ(Contents(runtime, ResourceKind::kUnbatchGrad), (std::vector<int64_t>{1, 8, 1}));
    } else {
      EXPECT_EQ(owner.completions, 1);
      EXPECT_TRUE(owner.code == Code::kOk || owner.code == Code::kResourceExhausted);
      EXPECT_EQ(Contents(runtime, ResourceKind::kUnbatchGrad), (std::vector<int64_t>{0, 0, 0}));
    }
    if (RequestsOfNew() <= at) break;
  }
}

struct UnbatchData {
  // Call `id`, which brings the rows of calls 1, 2 and 3.
  UnbatchCall Bring(const int64_t& id) const {
    return {kName, batch.view(), index->view(), TensorView::Scalar(id), 1'000'000'000};
  }
  // Call `id`, which brings nothing and waits.
  UnbatchCall Receive(const int64_t& id) const {
    return {kName, none.view(), no_index->view(), TensorView::Scalar(id), 1'000'000'000};
  }
  const Tensor batch = TensorOf<float>({1, 2, 3}, Shape{3, 1});
  const Tensor none = TensorOf<float>({}, Shape{0, 1});
  const std::shared_ptr<const Tensor> index = Index({1, 2, 3});
  const std::shared_ptr<const Tensor> no_index = Index({});
  const int64_t one = 1, two = 2, nine = 9;
};

TEST(BatchingNoThrowTest, UnbatchThatStoresAndDelivers) {
  const UnbatchData data;
  const auto receiver_waits = [&](BatchingRuntime& runtime) {
    runtime.UnbatchAsync(data.Receive(data.two), [](const Result<Tensor>&) {});
  };
  ExpectNoTrace({ResourceKind::kUnbatch, receiver_waits, [&](BatchingRuntime& runtime, Outcome& outcome) {
                   runtime.UnbatchAsync(data.Bring(data.one), RecordIn<Tensor>(outcome));
                 }});
  ExpectNoTrace({ResourceKind::kUnbatch, receiver_waits,
                 [&](BatchingRuntime& runtime, Outcome& outcome) {
                   runtime.UnbatchAsync(data.Bring(data.nine), RecordIn<Tensor>(outcome));
                 },
                 /*waits=*/true});
}

TEST(BatchingNoThrowTest, UnbatchThatWaits) {
  const UnbatchData data;
  ExpectNoTrace({ResourceKind::kUnbatch, Nothing,
                 [&](BatchingRuntime& runtime, Outcome& outcome) {
                   runtime.UnbatchAsync(data.Receive(data.two), RecordIn<Tensor>(outcome));
                 },
                 /*waits=*/true});
}

TEST(BatchingNoThrowTest, BatchThatStartsOrDisplacesABatch) {
  const Tensor rows = TensorOf<float>({1, 2, 3}, Shape{3, 1});
  const BatchCall call{.resource = kName,
                       .in_tensors = {{rows.view()}, {rows.view()}},
                       .max_batch_size = 5,
                       .batch_timeout_micros = 1'000'000'000,
                       .batching_queue = "a name that is too long to be kept without the heap"};
  ExpectNoTrace(
      {ResourceKind::kBatch, Nothing,
       [&](BatchingRuntime& runtime, Outcome& outcome) { runtime.BatchAsync(call, RecordIn<BatchOutput>(outcome)); },
       /*waits=*/true});
  const auto first_waits = [&](BatchingRuntime& runtime) {
    runtime.BatchAsync(call, [](const Result<BatchOutput>&) {});
  };
  ExpectNoTrace(
      {ResourceKind::kBatch, first_waits,
       [&](BatchingRuntime& runtime, Outcome& outcome) { runtime.BatchAsync(call, RecordIn<BatchOutput>(outcome)); },
       /*waits=*/true});
}

// Padding may have thousands of times the rows of the calls. It is not listed row by row.
TEST(BatchingNoThrowTest, PaddingTakesNoMemoryButTheResults) {
  constexpr int64_t kRows = 100'000;
  const Tensor row = TensorOf<uint8_t>({7}, Shape{1, 1});
  BatchingRuntime runtime;
  Result<BatchOutput> batch = Status(Code::kUnavailable, "not called");
  {
    const ScopedFailure never(Failing::kOnce, INT64_MAX);
    batch = runtime.Batch(
        {.resource = kName, .in_tensors = {{row.view()}}, .max_batch_size = kRows, .allowed_batch_sizes = {kRows}});
  }
  ASSERT_THAT(batch, IsOk());
  EXPECT_GT(RequestsOfNew(), 0);
  EXPECT_LT(LargestRequestOfNew(), 10'000);
  const Tensor& rows = batch->batched_tensors[0];
  EXPECT_EQ(rows.shape(), (Shape{kRows, 1}));
  EXPECT_EQ(std::count(rows.As<uint8_t>(), rows.As<uint8_t>() + kRows, 7), kRows);
}

// An error of the batch goes to all its calls.
TEST(BatchingNoThrowTest, BatchThatIsFilled) {
  const Tensor rows = TensorOf<float>({1, 2, 3}, Shape{3, 1});
  const BatchCall call{
      .resource = kName, .in_tensors = {{rows.view()}}, .max_batch_size = 6, .batch_timeout_micros = 1'000'000'000};
  for (int64_t at = 0;; ++at) {
    SCOPED_TRACE("request " + std::to_string(at) + " fails");
    Outcome first, second;
    BatchingRuntime runtime;
    runtime.BatchAsync(call, RecordIn<BatchOutput>(first));
    {
      const ScopedFailure failure(Failing::kOnce, at);
      runtime.BatchAsync(call, RecordIn<BatchOutput>(second));
    }
    ASSERT_EQ(second.completions, 1);
    if (second.code == Code::kOk) {
      EXPECT_EQ(first.completions, 1);
    }
    EXPECT_EQ(Contents(runtime, ResourceKind::kBatch)[0], first.completions == 1 ? 0 : 1);
    if (RequestsOfNew() <= at) break;
  }
}

TEST(BatchingNoThrowTest, EndingWaitsNeedsNoMemory) {
  const Cancellation token;
  Outcome cancelled, closed;
  BatchingRuntime runtime;
  GradOperands first(1, FloatPiece(1, 2, 0), {1, 2});
  first.call().waiting.cancellation = token;
  runtime.UnbatchGradAsync(first.call(), RecordIn<Tensor>(cancelled));
  const GradOperands second(3, FloatPiece(1, 2, 0), {3, 4});
  runtime.UnbatchGradAsync(second.call(), RecordIn<Tensor>(closed));
  {
    const ScopedFailure failure(Failing::kFromThenOn, 0);
    token.Cancel();
    static_cast<void>(runtime.Close(ResourceKind::kUnbatchGrad, kName));
  }
  EXPECT_EQ(cancelled.completions, 1);
  EXPECT_EQ(cancelled.code, Code::kCancelled);
  EXPECT_EQ(closed.completions, 1);
  EXPECT_EQ(closed.code, Code::kCancelled);
}

TEST(BatchingNoThrowTest, ARuntimeThatCouldNotBeMade) {
  const GradOperands piece(1, FloatPiece(1, 2, 0));
  const auto call = [&] {
    BatchingRuntime runtime;
    return runtime.UnbatchGrad(piece.call()).status().code();
  };
  ForEachFailure(call, [](Code code) { EXPECT_TRUE(code == Code::kOk || code == Code::kResourceExhausted); });
}

// The same for requests to the context's allocator, with all three operators, numbers and strings.
TEST(BatchingNoThrowTest, EveryRequestToTheAllocator) {
  const Tensor strings = TensorOfStrings(Shape{2, 1}, {"one", "three"});
  const Tensor numbers = TensorOf<float>({1, 2, 3, 4}, Shape{2, 2});
  ExpectEveryAllocationFailureIsReported({}, [&](const Context& ctx) -> Status {
    BatchingRuntime runtime(ctx);
    const Result<BatchOutput> batch =
        runtime.Batch({.resource = kName, .in_tensors = {{strings.view()}, {numbers.view()}}, .max_batch_size = 2});
    if (!batch.ok()) return batch.status();
    const Result<Tensor> rows =
        runtime.Unbatch({kName, batch->batched_tensors[0].view(), batch->batch_index.view(), batch->id.view(), 1000});
    if (!rows.ok()) return rows.status();
    const GradOperands piece(7, FloatPiece(2, 2, 0));
    if (Status s = runtime.UnbatchGrad(piece.call()).status(); !s.ok()) return s;
    const GradOperands owner(8, FloatPiece(2, 2, 0), {8, 7});
    return runtime.UnbatchGrad(owner.call()).status();
  });
}

}  // namespace
}  // namespace raggrad::testing
