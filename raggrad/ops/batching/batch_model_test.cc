// Random interleavings of Batch calls, good and bad, cancellations, deadlines and closes, against a serial model: after
// every step the same calls have ended, with the same results.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "raggrad/ops/batching/model_round.h"

namespace raggrad::testing {
namespace {

constexpr int64_t kMaxBatchSize = 6;
constexpr int64_t kTimeoutMicros = 2'000'000'000;  // half an hour: not in this test

struct Operands {
  std::vector<Tensor> tensors;
  std::string queue;
  Waiting waits = {};

  Waiting& waiting() { return waits; }
  int64_t rows() const { return tensors[0].shape()[0]; }
  BatchCall call() const {
    BatchCall call{.resource = {"", "b"},
                   .in_tensors = {},
                   .max_batch_size = kMaxBatchSize,
                   .batch_timeout_micros = kTimeoutMicros,
                   .allowed_batch_sizes = {2, 5, kMaxBatchSize},
                   .batching_queue = queue,
                   .waiting = waits};
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

class Round final : public ModelRound<Model, Operands, BatchOutput> {
  using ModelRound::ModelRound;

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

  void Call() override {
    const Operands& operands = Make(RandomOperands());
    Run(
        model_.Call(next() - 1, operands, cancelled()), [&] { return runtime_->Batch(operands.call()); },
        [&](auto completion) { runtime_->BatchAsync(operands.call(), std::move(completion)); });
  }

  void Close() override {
    static_cast<void>(runtime_->Close(ResourceKind::kBatch, {"", "b"}));
    ExpectEnds(model_.Close());
  }

  void ExpectStatistics() override {
    const auto got = runtime_->Statistics(ResourceKind::kBatch, {"", "b"});
    if (!got.ok()) return;
    EXPECT_EQ(got->calls, got->succeeded + got->failed + got->waiters);
    EXPECT_EQ(got->waiters, model_.waiting());
    EXPECT_EQ(got->pieces, model_.waiting());
  }

  void ExpectOutput(const End& end, const BatchOutput& output) override {
    if (end.batch.empty()) {  // no rows: everything has shape [0]
      EXPECT_EQ(output.id.shape(), Shape{0});
      EXPECT_EQ(output.batch_index.shape(), Shape{0});
      return;
    }
    const bool owner = end.call == end.batch.back();
    std::vector<int64_t> index;
    int64_t rows = 0;
    for (const int call : owner ? end.batch : std::vector<int>()) {
      index.insert(index.end(), {*(*Find(call))->id.As<int64_t>(), rows, rows + made(call).rows()});
      rows += made(call).rows();
    }
    EXPECT_EQ(
        Difference(output.batch_index.view(), TensorOf(index, Shape{static_cast<int64_t>(index.size() / 3), 3}).view()),
        "");
    const int64_t padded = rows <= 2 ? 2 : rows <= 5 ? 5 : kMaxBatchSize;
    for (size_t t = 0; t < output.batched_tensors.size(); ++t) {
      std::vector<TensorView> pieces;
      for (const int call : owner ? end.batch : std::vector<int>()) {
        pieces.push_back(made(call).tensors[t].view());
      }
      for (int64_t i = rows; owner && i < padded; ++i) {
        pieces.push_back(made(end.batch[0]).tensors[t].view());
        pieces.back().shape = Shape::WithDim0(1, pieces.back().shape.tail());
      }
      const Tensor joined = JoinedByHand(made(end.call).tensors[t].view(), pieces);
      EXPECT_EQ(Difference(output.batched_tensors[t].view(), joined.view()), "");
    }
  }
};

TEST(BatchModelTest, EveryStepAgrees) { PlayRounds<Round>(); }

}  // namespace
}  // namespace raggrad::testing
