// Random interleavings of Batch calls, good and bad, cancellations, deadlines and closes, against a serial model: after
// every step the same calls have ended, with the same results.
#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "raggrad/ops/batching/test_calls.h"
#include "raggrad/ops/batching/test_random.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

constexpr int64_t kStepsPerRound = 1000;
constexpr int64_t kMaxBatchSize = 6;
constexpr int64_t kTimeoutMicros = 2'000'000'000;  // half an hour: not in this test

struct Operands {
  std::vector<Tensor> tensors;
  std::string queue;
  Waiting waiting = {};

  int64_t rows() const { return tensors[0].shape()[0]; }
  BatchCall call() const {
    BatchCall call{.resource = {"", "b"},
                   .in_tensors = {},
                   .max_batch_size = kMaxBatchSize,
                   .batch_timeout_micros = kTimeoutMicros,
                   .allowed_batch_sizes = {2, 5, kMaxBatchSize},
                   .batching_queue = queue,
                   .waiting = waiting};
    for (const Tensor& tensor : tensors) call.in_tensors.push_back({tensor.view()});
    return call;
  }
};

// How a call ends: an error, or as one of `batch`, whose last call is the owner.
struct End {
  int call;
  Code code = Code::kOk;
  std::vector<int> batch = {};
};

class Model {
 public:
  std::vector<End> Call(int number, const Operands& operands, bool cancelled) {
    if (operands.rows() == 0) return {{number}};
    if (operands.rows() > kMaxBatchSize) return {{number, Code::kInvalidArgument}};
    if (cancelled) return {{number, Code::kCancelled}};
    std::vector<End> ends;
    std::vector<Task>& open = open_[operands.queue];
    if (Rows(open) + operands.rows() > kMaxBatchSize) Process(open, ends);
    open.push_back({number, operands.rows(), KindOf(operands)});
    if (Rows(open) == kMaxBatchSize) Process(open, ends);
    return ends;
  }

  std::vector<End> EndWait(int number, Code why) {
    for (auto& [queue, open] : open_) {
      if (std::erase_if(open, [&](const Task& task) { return task.call == number; }) > 0) return {{number, why}};
    }
    return {};
  }

  std::vector<End> Close() {
    std::vector<End> ends;
    for (const auto& [queue, open] : open_) {
      for (const Task& task : open) ends.push_back({task.call, Code::kCancelled});
    }
    open_.clear();
    return ends;
  }

  int64_t waiting() const {
    size_t waiting = 0;
    for (const auto& [queue, open] : open_) waiting += open.size();
    return static_cast<int64_t>(waiting);
  }

 private:
  struct Task {
    int call;
    int64_t rows;
    std::vector<int64_t> kind;
  };

  // What has to be the same for all calls of a batch.
  static std::vector<int64_t> KindOf(const Operands& operands) {
    std::vector<int64_t> kind;
    for (const Tensor& tensor : operands.tensors) {
      kind.push_back(static_cast<int64_t>(tensor.dtype()));
      kind.push_back(tensor.shape().rank());
      kind.insert(kind.end(), tensor.shape().tail().begin(), tensor.shape().tail().end());
    }
    return kind;
  }

  static int64_t Rows(const std::vector<Task>& tasks) {
    int64_t rows = 0;
    for (const Task& task : tasks) rows += task.rows;
    return rows;
  }

  static void Process(std::vector<Task>& tasks, std::vector<End>& ends) {
    const bool fits = std::ranges::all_of(tasks, [&](const Task& task) { return task.kind == tasks[0].kind; });
    std::vector<int> batch;
    for (const Task& task : tasks) batch.push_back(task.call);
    for (const int call : batch) ends.push_back({call, fits ? Code::kOk : Code::kInvalidArgument, batch});
    tasks.clear();
  }

  std::map<std::string, std::vector<Task>> open_;
};

class Round {
 public:
  explicit Round(uint64_t seed) : random_(seed) { context_.allocator = &allocator_; }

  void Play() {
    {
      BatchingRuntime runtime(context_);
      runtime_ = &runtime;
      for (int64_t step = 0; step < kStepsPerRound && !::testing::Test::HasFailure(); ++step) {
        SCOPED_TRACE("step " + std::to_string(step));
        const int64_t kind = random_.Below(100);
        if (kind < 85) {
          Call();
        } else if (kind < 98) {
          Cancel();
        } else if (kind < 99) {
          ExpectStatistics();
        } else {
          static_cast<void>(runtime.Close(ResourceKind::kBatch, {"", "b"}));
          ExpectEnds(model_.Close());
        }
      }
      runtime.CloseAll();
      ExpectEnds(model_.Close());
    }
    log_ = std::make_unique<CallLog<BatchOutput>>();
  }

 private:
  bool OneIn(int64_t n) { return random_.Below(n) == 0; }

  Operands RandomOperands() {
    const int64_t rows = OneIn(30) ? random_.Below(9) : 1 + random_.Below(3);
    const auto first = static_cast<float>(100 * made_.size());
    Operands operands{{}, OneIn(4) ? "other" : ""};
    const auto piece = [&](int64_t columns) {
      std::vector<float> values(static_cast<size_t>(rows * columns));
      std::iota(values.begin(), values.end(), first);
      return TensorOf(values, Shape{rows, columns});
    };
    operands.tensors.push_back(piece(OneIn(50) ? 3 : 2));
    if (!OneIn(50)) operands.tensors.push_back(piece(1));
    return operands;
  }

  void Call() {
    const auto number = static_cast<int>(made_.size());
    Operands& operands = made_.emplace_back(RandomOperands());
    if (!OneIn(4)) operands.waiting.cancellation.emplace();
    const bool cancelled = operands.waiting.cancellation && OneIn(30);
    if (cancelled) operands.waiting.cancellation->Cancel();
    const bool no_time = !cancelled && OneIn(20);
    if (no_time) operands.waiting.timeout = WaitTime(0);
    std::vector<End> ends = model_.Call(number, operands, cancelled);
    const bool waits = std::ranges::find(ends, number, &End::call) == ends.end();
    if (!waits && OneIn(2)) {
      log_->Record(number)(runtime_->Batch(operands.call()));
    } else {
      runtime_->BatchAsync(operands.call(), log_->Record(number));
    }
    if (waits && no_time) {
      ASSERT_NE(log_->Await(number), nullptr);
      for (const End& end : model_.EndWait(number, Code::kDeadlineExceeded)) ends.push_back(end);
    }
    ExpectEnds(ends);
  }

  void Cancel() {
    if (made_.empty()) return;
    const int64_t recent = std::min<int64_t>(static_cast<int64_t>(made_.size()), 6);
    const auto number = static_cast<int>(static_cast<int64_t>(made_.size()) - 1 - random_.Below(recent));
    const auto& token = made_[static_cast<size_t>(number)].waiting.cancellation;
    if (!token) return;
    token->Cancel();
    ExpectEnds(model_.EndWait(number, Code::kCancelled));
  }

  void ExpectStatistics() {
    const auto got = runtime_->Statistics(ResourceKind::kBatch, {"", "b"});
    if (!got.ok()) return;
    EXPECT_EQ(got->calls, got->succeeded + got->failed + got->waiters);
    EXPECT_EQ(got->waiters, model_.waiting());
    EXPECT_EQ(got->pieces, model_.waiting());
  }

  const Operands& OperandsOf(int call) const { return made_[static_cast<size_t>(call)]; }
  const BatchOutput& OutputOf(int call) const { return **log_->Find(call); }

  void ExpectEnds(const std::vector<End>& ends) {
    std::vector<int> expected;
    for (const End& end : ends) {
      expected.push_back(end.call);
      const Result<BatchOutput>* const result = log_->Find(end.call);
      ASSERT_NE(result, nullptr) << "call " << end.call << " still waits";
      ASSERT_THAT(*result, StatusIs(end.code, ::testing::_)) << "call " << end.call;
    }
    EXPECT_THAT(log_->TakeNew(), ::testing::UnorderedElementsAreArray(expected));
    for (const End& end : ends) {
      if (end.code == Code::kOk) ExpectOutput(end);
    }
  }

  void ExpectOutput(const End& end) {
    const BatchOutput& output = OutputOf(end.call);
    if (end.batch.empty()) {  // no rows: everything has shape [0]
      EXPECT_EQ(output.id.shape(), Shape{0});
      EXPECT_EQ(output.batch_index.shape(), Shape{0});
      return;
    }
    const bool owner = end.call == end.batch.back();
    std::vector<int64_t> index;
    int64_t rows = 0;
    for (const int call : owner ? end.batch : std::vector<int>()) {
      index.insert(index.end(), {*OutputOf(call).id.As<int64_t>(), rows, rows + OperandsOf(call).rows()});
      rows += OperandsOf(call).rows();
    }
    EXPECT_EQ(
        Difference(output.batch_index.view(), TensorOf(index, Shape{static_cast<int64_t>(index.size() / 3), 3}).view()),
        "");
    const int64_t padded = rows <= 2 ? 2 : rows <= 5 ? 5 : kMaxBatchSize;
    for (size_t t = 0; t < output.batched_tensors.size(); ++t) {
      std::vector<TensorView> pieces;
      for (const int call : owner ? end.batch : std::vector<int>()) {
        pieces.push_back(OperandsOf(call).tensors[t].view());
      }
      for (int64_t i = rows; owner && i < padded; ++i) {
        pieces.push_back(OperandsOf(end.batch[0]).tensors[t].view());
        pieces.back().shape = Shape::WithDim0(1, pieces.back().shape.tail());
      }
      const Tensor joined = JoinedByHand(OperandsOf(end.call).tensors[t].view(), pieces);
      EXPECT_EQ(Difference(output.batched_tensors[t].view(), joined.view()), "");
    }
  }

  Generator random_;
  CountingAllocator allocator_;
  Context context_;
  BatchingRuntime* runtime_ = nullptr;
  Model model_;
  std::deque<Operands> made_;
  std::unique_ptr<CallLog<BatchOutput>> log_ = std::make_unique<CallLog<BatchOutput>>();
};

TEST(BatchModelTest, EveryStepAgrees) {
  const uint64_t seed = TestSeed();
  for (int64_t steps = 0; steps < ModelSteps() && !HasFailure(); steps += kStepsPerRound) {
    SCOPED_TRACE("round " + std::to_string(steps / kStepsPerRound));
    Round(seed + static_cast<uint64_t>(steps)).Play();
  }
}

}  // namespace
}  // namespace raggrad::testing
