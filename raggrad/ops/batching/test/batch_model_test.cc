// Random Batch calls, good and bad, cancellations, deadlines and closes against the serial model (model_round.h).
#include "raggrad/ops/batching/test/batch_model.h"

#include <gtest/gtest.h>

#include <numeric>

#include "raggrad/ops/batching/test/model_round.h"

namespace raggrad::testing {
namespace {

class Round final : public ModelRound<BatchModel, BatchOperands, BatchOutput> {
  using ModelRound::ModelRound;

  BatchOperands RandomOperands() {
    const int64_t rows = OneIn(30) ? random_.Below(9) : 1 + random_.Below(3);
    const auto first = static_cast<float>(100 * made_.size());
    BatchOperands operands{{}, OneIn(4) ? "other" : ""};
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
    const BatchOperands& operands = Make(RandomOperands());
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

  void ExpectOutput(const BatchEnd& end, const BatchOutput& output) override {
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
    const int64_t padded = BatchModel::Padded(rows);
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
