#include "updates.h"

namespace raggrad::torch_door {
namespace {

void UpdateRows(Call& call, const TorchTensor& table, const RowUpdate& update, const TorchTensor& values,
                const TorchTensor& rows) {
  const MutableTensorView weights = call.Mutable(table, "table");
  if (weights.shape.rank() == 0) {
    call.Check(Status(Code::kInvalidArgument, "[table: expected at least 1 dimension, got a scalar]"));
  }
  call.Check(ApplyRows({call.View(values), call.View(rows), weights.shape[0]}, update, weights, call.context()));
}

}  // namespace

void SgdRows(const TorchTensor& table, const TorchTensor& values, const TorchTensor& rows, double learning_rate,
             const std::optional<std::string>& accumulation) {
  Call call("sgd_rows_", table, accumulation);
  UpdateRows(call, table, Sgd{learning_rate}, values, rows);
}

void AdagradRows(const TorchTensor& table, const TorchTensor& accumulator, const TorchTensor& values,
                 const TorchTensor& rows, double learning_rate, double epsilon,
                 const std::optional<std::string>& accumulation) {
  Call call("adagrad_rows_", table, accumulation);
  UpdateRows(call, table, Adagrad{learning_rate, epsilon, call.Mutable(accumulator, "accumulator")}, values, rows);
}

void AdamRows(const TorchTensor& table, const TorchTensor& m, const TorchTensor& v, const TorchTensor& values,
              const TorchTensor& rows, double learning_rate, double beta1, double beta2, double epsilon, int64_t step,
              const std::optional<std::string>& accumulation) {
  Call call("adam_rows_", table, accumulation);
  UpdateRows(call, table, Adam{learning_rate, beta1, beta2, epsilon, step, call.Mutable(m, "m"), call.Mutable(v, "v")},
             values, rows);
}

}  // namespace raggrad::torch_door
