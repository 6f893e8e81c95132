#include "rule.h"

#include "raggrad/core/error_text.h"

namespace raggrad::torch_door {
namespace {

MutableTensorView StateOf(Call& call, const MaybeTensor& state, std::string_view name) {
  if (state) return call.Mutable(*state, name);
  call.Check(MakeError(Code::kInvalidArgument, "[", name, ": expected a tensor, got None]"));
  return {};
}

}  // namespace

RowUpdate UpdateOf(Call& call, const Rule& rule) {
  TensorView rate;
  if (rule.rate) rate = call.View(*rule.rate);
  if (rule.optimizer == "sgd") return Sgd{rule.learning_rate, rate};
  const MutableTensorView state = StateOf(call, rule.state1, "state1");
  if (rule.optimizer == "adagrad") return Adagrad{rule.learning_rate, rule.epsilon, state, rate};
  if (rule.optimizer == "rowwise_adagrad") return RowwiseAdagrad{rule.learning_rate, rule.epsilon, state, rate};
  if (rule.optimizer == "adam") {
    return Adam{rule.learning_rate,
                rule.beta1,
                rule.beta2,
                rule.epsilon,
                rule.step,
                state,
                StateOf(call, rule.state2, "state2"),
                rate};
  }
  call.Check(MakeError(Code::kInvalidArgument,
                       "[optimizer: expected 'sgd', 'adagrad', 'adam' or 'rowwise_adagrad', got '", rule.optimizer,
                       "']"));
  return Sgd{};
}

MutableTensorView TableOf(Call& call, const TorchTensor& table) {
  MutableTensorView weights = call.Mutable(table, "table");
  if (weights.shape.rank() == 0) {
    call.Check(Status(Code::kInvalidArgument, "[table: expected at least 1 dimension, got a scalar]"));
  }
  return weights;
}

}  // namespace raggrad::torch_door

void raggrad_torch_adam_rates(double beta1, double beta2, int64_t count, double* rates) noexcept {
  for (int64_t i = 0; i < count; ++i) {
    rates[i] = raggrad::RateOf(raggrad::Adam{.learning_rate = 1.0, .beta1 = beta1, .beta2 = beta2, .step = i + 1});
  }
}
