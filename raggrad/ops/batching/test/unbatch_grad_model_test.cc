// Random UnbatchGrad calls, good and bad, cancellations, deadlines and closes against the serial model (model_round.h).
#include "raggrad/ops/batching/test/unbatch_grad_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "raggrad/ops/batching/test/model_round.h"

namespace raggrad::testing {
namespace {

constexpr int64_t kKeys = 8;  // few, so that calls meet often

struct Made {
  GradOperands operands;
  std::shared_ptr<const void> keep_alive = nullptr;

  Waiting& waiting() { return operands.call().waiting; }
};

class Round final : public ModelRound<UnbatchGradModel, Made, Tensor> {
 public:
  using ModelRound::ModelRound;

  void Play() {
    ModelRound::Play();
    for (const Made& made : made_) {
      if (made.keep_alive != nullptr) {
        EXPECT_EQ(made.keep_alive.use_count(), 2) << "the runtime still holds a piece";
      }
    }
  }

 private:
  std::shared_ptr<const Tensor> RandomPiece() {
    const int64_t rows = random_.Below(4);
    const auto first = static_cast<float>(1000 * made_.size());
    if (OneIn(60)) return FloatPiece(rows, 3, first);
    if (OneIn(60)) return std::make_shared<const Tensor>(TensorOf(std::vector<float>(4), Shape{1, 2, 2}));
    if (OneIn(60)) return std::make_shared<const Tensor>(TensorOf(std::vector<int32_t>(2, 7), Shape{1, 2}));
    if (OneIn(60)) return std::make_shared<const Tensor>(TensorOfBytes(DType::kQInt8, Shape{1, 2}, "ab"));
    if (OneIn(100)) return std::make_shared<const Tensor>(TensorOf(std::vector<float>(1), Shape{}));
    return FloatPiece(rows, 2, first);
  }

  std::vector<int64_t> RandomKeys(int64_t own) {
    std::vector<int64_t> keys;
    if (OneIn(2)) return keys;  // not an owner
    if (!OneIn(6)) keys.push_back(own);
    const int64_t others = random_.Below(4);
    for (int64_t i = 0; i < others || keys.empty(); ++i) {
      const int64_t key = random_.Below(kKeys);
      const bool listed = std::ranges::find(keys, key) != keys.end();
      if (!listed || OneIn(20)) keys.push_back(key);
    }
    std::swap(keys.front(), keys.back());
    return keys;
  }

  void Call() override {
    const int64_t id = random_.Below(kKeys);
    Made& made = Make({{id, RandomPiece(), RandomKeys(id)}});
    UnbatchGradCall& call = made.operands.call();
    if (OneIn(30)) made.operands.SetIndex(std::make_shared<const Tensor>(TensorOf<int64_t>({1, 2}, Shape{1, 2})));
    if (OneIn(50)) call.id.shape = Shape{1};
    if (OneIn(2)) made.keep_alive = call.grad.keep_alive = std::make_shared<int>(0);
    Run(
        model_.Call(next() - 1, call, cancelled()), [&] { return runtime_->UnbatchGrad(call); },
        [&](auto completion) { runtime_->UnbatchGradAsync(call, std::move(completion)); });
  }

  void Close() override {
    const Status status = runtime_->Close(ResourceKind::kUnbatchGrad, {"", "r"});
    EXPECT_EQ(status.code(), model_.calls() > 0 ? Code::kOk : Code::kNotFound);
    ExpectEnds(model_.Close());
  }

  void ExpectStatistics() override {
    const auto got = runtime_->Statistics(ResourceKind::kUnbatchGrad, {"", "r"});
    ASSERT_EQ(got.ok(), model_.calls() > 0);
    if (!got.ok()) return;
    EXPECT_EQ(got->calls, model_.calls());
    EXPECT_EQ(got->succeeded, model_.succeeded());
    EXPECT_EQ(got->failed, model_.failed());
    EXPECT_EQ(got->pieces, model_.pieces());
    EXPECT_EQ(got->waiters, model_.waiters());
    EXPECT_EQ(got->calls, got->succeeded + got->failed + got->waiters);
    EXPECT_EQ(got->bytes, model_.bytes());
  }

  std::string ErrorText(const ModelEnd& end) const override { return end.text; }

  void ExpectOutput(const ModelEnd& end, const Tensor& output) override {
    std::vector<TensorView> pieces;
    for (const int call : end.joined) pieces.push_back(GradOf(call));
    EXPECT_EQ(DifferenceOrEmpty(output.view(), JoinedByHand(GradOf(end.call), pieces).view()), "");
  }

  const TensorView& GradOf(int call) { return made(call).operands.grad().view(); }
};

TEST(UnbatchGradModelTest, EveryStepAgrees) { PlayRounds<Round>(); }

}  // namespace
}  // namespace raggrad::testing
