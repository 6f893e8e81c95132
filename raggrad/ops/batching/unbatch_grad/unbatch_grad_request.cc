#include "raggrad/ops/batching/unbatch_grad/unbatch_grad_request.h"

#include <algorithm>
#include <new>

#include "raggrad/core/operands.h"
#include "raggrad/ops/batching/checks.h"
#include "raggrad/ops/batching/pieces/device_pieces.h"
#include "raggrad/ops/batching/pieces/pieces.h"

namespace raggrad::batching {
namespace {

constexpr std::string_view kOp = "UnbatchGrad";

Status CheckInputs(const UnbatchGradCall& call) noexcept {
  const DType type = call.original_input.dtype;
  if (Status s = CheckInputType(kOp, 1, "batch_index", DType::kInt64, call.batch_index.dtype); !s.ok()) return s;
  if (Status s = CheckInputType(kOp, 2, "grad", type, call.grad.view.dtype); !s.ok()) return s;
  if (Status s = CheckInputType(kOp, 3, "id", DType::kInt64, call.id.dtype); !s.ok()) return s;
  TensorView original_input = call.original_input;  // never read: it may be null, and on any device
  original_input.data = &call;
  const Operand operands[] = {
      {"original_input", original_input}, {"batch_index", call.batch_index}, {"grad", call.grad.view}, {"id", call.id}};
  for (const Operand& operand : operands) {
    const bool anywhere = operand.name == "original_input" || operand.name == "grad";
    if (Status s = anywhere ? CheckOperands(kOp, {operand}) : CheckHostOperand(kOp, operand); !s.ok()) return s;
  }
  const TensorView& grad = call.grad.view;
  return grad.device.is_cpu() ? CheckStringData(kOp, "grad", grad) : CheckDevice(kOp, grad.device, type);
}

// Reads the keys of an owner's index, its column 0. The index may have any rank as long as it has 3 elements per entry
// of dimension 0.
Status ReadRows(const TensorView& index, std::vector<IndexRow>& rows) {
  const int64_t elements = index.shape.NumElements().value_or(0);
  if (elements == 0) {
    return InvalidArgument(kOp, "batch_index is empty while the tensor isn't. [batch_index: got shape ", index.shape,
                           "]");
  }
  const int64_t count = index.rank() == 0 ? 0 : index.dim(0);
  if (elements % 3 != 0 || elements / 3 != count) {
    return InvalidArgument(kOp, "batch_index should contain ", 3 * std::min(count, INT64_MAX / 3),
                           " elements. Received ", elements, " [batch_index: expected shape [calls,3], got ",
                           index.shape, "]");
  }
  rows.resize(static_cast<size_t>(count));
  for (size_t i = 0; i < rows.size(); ++i) rows[i].key = index.As<int64_t>()[3 * i];
  return {};
}

std::optional<int64_t> FindRepeated(const std::vector<IndexRow>& rows) {
  std::vector<int64_t> keys(rows.size());
  std::ranges::transform(rows, keys.begin(), &IndexRow::key);
  std::ranges::sort(keys);
  const auto twice = std::ranges::adjacent_find(keys);
  return twice == keys.end() ? std::nullopt : std::optional(*twice);
}

// Refuses shapes that TensorFlow accepts although they are most likely a mistake.
Status CheckStrictShapes(const UnbatchGradCall& call, bool owner) noexcept {
  const Shape& batch = call.original_input.shape;
  if (batch.rank() == 0) return InvalidArgument(kOp, "original_input: expected at least rank 1, got a scalar");
  if (!owner && batch[0] > 0) {
    return InvalidArgument(kOp, "original_input: has ", batch[0],
                           " rows without elements, so the call is not an owner [got shape ", batch, "]");
  }
  const Shape& index = call.batch_index.shape;
  if (index.rank() != 2 || index[1] != 3 || (!owner && index[0] > 0)) {
    return InvalidArgument(kOp, "batch_index: expected shape ", owner ? "[calls,3]" : "[0,3]", ", got ", index);
  }
  return {};
}

Status CheckStrictRows(const UnbatchGradCall& call, UnbatchGradRequest& request) noexcept {
  if (!request.lists_itself) return InvalidArgument(kOp, "id: ", request.id, " is not among the keys of batch_index");
  const int64_t* entry = call.batch_index.As<int64_t>();
  int64_t end = 0;
  for (size_t i = 0; i < request.rows.size(); ++i, entry += 3) {
    if (entry[1] != end || entry[2] < end || entry[2] > call.original_input.dim(0)) {
      return InvalidArgument(kOp, "batch_index[", i, "]: expected a range that starts at ", end, " and ends by ",
                             call.original_input.dim(0), ", got ", entry[1], " to ", entry[2]);
    }
    end = entry[2];
    request.rows[i].rows = entry[2] - entry[1];
  }
  return {};
}

}  // namespace

Result<UnbatchGradRequest> CheckUnbatchGrad(const Context& ctx, const UnbatchGradCall& call) noexcept {
  if (Status s = CheckInputs(call); !s.ok()) return s;
  const Result<int64_t> id = ReadId(kOp, call.id, "Expected `id` to be scalar. Received ", "");
  if (!id.ok()) return id.status();
  if (call.grad.view.rank() == 0) return InvalidArgument(kOp, "grad: expected at least rank 1, got a scalar");
  const bool owner = call.original_input.shape.NumElements() != 0;
  if (call.strict) {
    if (Status s = CheckStrictShapes(call, owner); !s.ok()) return s;
  }
  try {
    UnbatchGradRequest request{.id = *id, .owner = owner, .grad = call.grad, .waiting = call.waiting};
    request.bytes = BytesOf(call.grad.view);
    if (!call.grad.view.device.is_cpu()) {
      Result<SharedView> kept = KeepOnDevice(ctx, kOp, call.grad, call.stream);
      if (!kept.ok()) return kept.status();
      request.grad = *std::move(kept);
      request.stream = call.stream;
    }
    if (!owner) return request;
    request.index_status = ReadRows(call.batch_index, request.rows);
    request.lists_itself = std::ranges::find(request.rows, *id, &IndexRow::key) != request.rows.end();
    request.repeated = FindRepeated(request.rows);
    if (call.strict && request.index_status.ok()) {
      if (Status s = CheckStrictRows(call, request); !s.ok()) return s;
    }
    return request;
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "UnbatchGrad: no memory for the call");
  }
}

}  // namespace raggrad::batching
