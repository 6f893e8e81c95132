// Random Unbatch calls, good and bad, cancellations, deadlines and closes against the serial model (model_round.h).
#include "raggrad/ops/batching/test/unbatch_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "raggrad/ops/batching/test/model_round.h"

namespace raggrad::testing {
namespace {

constexpr int64_t kKeys = 8;

class Round final : public ModelRound<UnbatchModel, UnbatchOperands, Tensor> {
  using ModelRound::ModelRound;

  UnbatchOperands RandomOperands() {
    UnbatchOperands operands{random_.Below(kKeys), {}, {}, {}, {}};
    if (OneIn(2)) {  // an owner, mostly one that lists itself
      if (!OneIn(8)) operands.keys.push_back(operands.id);
      for (int64_t more = random_.Below(4); more > 0; --more) {
        const int64_t key = random_.Below(kKeys);
        const bool listed = std::ranges::find(operands.keys, key) != operands.keys.end();
        if (!listed || OneIn(20)) operands.keys.push_back(key);
      }
    }
    std::vector<int64_t> index;
    int64_t total = 0;
    for (const int64_t key : operands.keys) {
      operands.rows.push_back(random_.Below(4));
      index.insert(index.end(), {key, 100, 100 + operands.rows.back()});  // only the difference counts
      total += operands.rows.back();
    }
    total += random_.Below(3) + static_cast<int64_t>(operands.keys.size());  // padding
    if (OneIn(20) && total > 0) total = random_.Below(total);                // maybe too few rows
    if (operands.keys.empty()) total = 0;
    operands.index = TensorOf(index, Shape{static_cast<int64_t>(operands.keys.size()), 3});
    std::vector<int32_t> values(static_cast<size_t>(total));
    std::iota(values.begin(), values.end(), static_cast<int32_t>(100 * made_.size()));
    operands.batch = TensorOf(values, Shape{total, 1});
    if (OneIn(30)) operands.batch = TensorOf(std::vector<float>(values.begin(), values.end()), Shape{total, 1});
    return operands;
  }

  void Call() override {
    const UnbatchOperands& operands = Make(RandomOperands());
    Run(
        model_.Call(next() - 1, operands, cancelled()), [&] { return runtime_->Unbatch(operands.call()); },
        [&](auto completion) { runtime_->UnbatchAsync(operands.call(), std::move(completion)); });
  }

  void Close() override {
    static_cast<void>(runtime_->Close(ResourceKind::kUnbatch, {"", "u"}));
    ExpectEnds(model_.Close());
  }

  void ExpectStatistics() override {
    const auto got = runtime_->Statistics(ResourceKind::kUnbatch, {"", "u"});
    if (!got.ok()) return;
    EXPECT_EQ(got->calls, got->succeeded + got->failed + got->waiters);
    EXPECT_EQ(got->pieces, static_cast<int64_t>(model_.stored()));
    EXPECT_EQ(got->waiters, static_cast<int64_t>(model_.waiting()));
  }

  void ExpectOutput(const UnbatchEnd& end, const Tensor& output) override {
    const Tensor& batch = made(end.from).batch;
    TensorView rows = batch.view();  // both types have 4 bytes
    rows.data = batch.As<char>() + 4 * end.begin;
    rows.shape = Shape{end.end - end.begin, 1};
    EXPECT_EQ(Difference(output.view(), rows), "");
  }
};

TEST(UnbatchModelTest, EveryStepAgrees) { PlayRounds<Round>(); }

}  // namespace
}  // namespace raggrad::testing
