#include "updates.h"

#include <cstring>

namespace raggrad::jax_door {
namespace {

constexpr int kTable = 0, kValues = 1, kIds = 2, kCount = 3, kLearningRate = 4, kFirstState = 5;

double LearningRate(const Call& call) {
  const TensorView rate = call.View(kLearningRate);
  if (rate.rank() != 0) return call.Real("learning_rate");
  return rate.dtype == DType::kFloat64 ? *rate.As<double>() : static_cast<double>(*rate.As<float>());
}

// XLA gives a result the memory of its argument, and copies the argument first if somebody still needs it.
MutableTensorView InPlace(const Call& call, int argument, int result) {
  MutableTensorView view = call.Result(result);
  const TensorView before = call.View(argument);
  if (view.data != before.data) {
    const auto count = static_cast<size_t>(before.shape.NumElements().value_or(0));
    std::memcpy(view.data, before.data, count * DTypeSize(before.dtype));
  }
  return view;
}

Status Apply(Call& call, const RowUpdate& update) {
  const MutableTensorView table = InPlace(call, kTable, 0);
  const TensorView ids = call.View(kIds);
  const auto count = call.Count(kCount, "rows.count", ids.dim(0));
  if (!count.ok()) return count.status();
  return ApplyRows({FirstRows(call.View(kValues), *count), FirstRows(ids, *count), table.shape[0]}, update, table,
                   call.context());
}

}  // namespace

Status ApplySgd(Call& call) { return Apply(call, Sgd{LearningRate(call)}); }

Status ApplyAdagrad(Call& call) {
  return Apply(call, Adagrad{.learning_rate = LearningRate(call),
                             .epsilon = call.Real("epsilon"),
                             .accumulator = InPlace(call, kFirstState, 1)});
}

Status ApplyAdam(Call& call) {
  return Apply(call, Adam{.learning_rate = LearningRate(call),
                          .beta1 = call.Real("beta1"),
                          .beta2 = call.Real("beta2"),
                          .epsilon = call.Real("epsilon"),
                          .step = int64_t{call.Number<int32_t>(kFirstState + 2)} + 1,
                          .m = InPlace(call, kFirstState, 1),
                          .v = InPlace(call, kFirstState + 1, 2)});
}

}  // namespace raggrad::jax_door
