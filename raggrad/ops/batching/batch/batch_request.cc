#include "raggrad/ops/batching/batch/batch_request.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "raggrad/core/operands.h"
#include "raggrad/ops/batching/checks.h"
#include "raggrad/ops/batching/pieces/pieces.h"

namespace raggrad::batching {
namespace {

constexpr std::string_view kOp = "Batch";

constexpr int64_t kMostBatchThreads = 10'000;  // TensorFlow hangs when it cannot start them; none is started here

Status CheckInt32(std::string_view attribute, int64_t value) noexcept {
  if (value == static_cast<int32_t>(value)) return {};
  return InvalidArgument(kOp, "Attr ", attribute, " has value ", value, " out of range for an int32");
}

Status CheckAttributes(const BatchCall& call) noexcept {
  if (Status s = CheckInt32("num_batch_threads", call.num_batch_threads); !s.ok()) return s;
  if (Status s = CheckInt32("max_batch_size", call.max_batch_size); !s.ok()) return s;
  if (Status s = CheckInt32("max_enqueued_batches", call.max_enqueued_batches); !s.ok()) return s;
  if (Status s = CheckInt32("batch_timeout_micros", call.batch_timeout_micros); !s.ok()) return s;
  for (const int64_t size : call.allowed_batch_sizes) {
    if (Status s = CheckInt32("allowed_batch_sizes", size); !s.ok()) return s;
  }
  const auto& sizes = call.allowed_batch_sizes;
  if (std::ranges::adjacent_find(sizes, std::ranges::greater_equal()) != sizes.end()) {
    return InvalidArgument(kOp, "allowed_batch_sizes entries must be monotonically increasing");
  }
  if (!sizes.empty() && sizes.back() != call.max_batch_size) {
    return InvalidArgument(kOp, "final entry in allowed_batch_sizes must equal max_batch_size");
  }
  return {};
}

Status WithShapes(std::string_view text, const std::vector<SharedView>& tensors) noexcept {
  try {
    std::string shapes;
    for (size_t i = 0; i < tensors.size(); ++i) {
      shapes.append(" - in__tensors_");
      AppendText(shapes, i);
      shapes.append(" has shape ");
      AppendText(shapes, tensors[i].view.shape);
      shapes.push_back('\n');
    }
    return InvalidArgument(kOp, text, "\nBelow are the input tensors: \n", shapes);
  } catch (const std::bad_alloc&) {
    return {Code::kInvalidArgument, {}};
  }
}

Status CheckTensors(const std::vector<SharedView>& tensors) {
  if (tensors.empty()) return InvalidArgument(kOp, "Length for attr 'T' of 0 must be at least minimum 1");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& tensor = tensors[i].view;
    const std::string name = "in_tensors[" + std::to_string(i) + "]";
    if (Status s = CheckOperands(kOp, {{"in_tensors[0]", tensors[0].view}, {name, tensor}}); !s.ok()) return s;
    if (!tensor.device.is_cpu()) return NoKernelForDevice(kOp, tensor.device);
    if (Status s = CheckStringData(kOp, name, tensor); !s.ok()) return s;
  }
  if (std::ranges::any_of(tensors, [](const SharedView& tensor) { return tensor.view.rank() == 0; })) {
    return WithShapes("Batching input tensors must have at least one dimension.", tensors);
  }
  const int64_t rows = tensors[0].view.dim(0);
  if (std::ranges::any_of(tensors, [&](const SharedView& tensor) { return tensor.view.dim(0) != rows; })) {
    return WithShapes("Batching input tensors supplied in a given op invocation must have equal 0th-dimension size.",
                      tensors);
  }
  return {};
}

}  // namespace

Result<BatchRequest> CheckBatch(const Context& ctx, const BatchCall& call, bool blocked) noexcept {
  if (Status s = CheckAttributes(call); !s.ok()) return s;
  try {
    if (Status s = CheckTensors(call.in_tensors); !s.ok()) return s;
    BatchRequest request{{}, call.in_tensors[0].view.dim(0), 0};
    request.tensors.reserve(call.in_tensors.size());
    for (const SharedView& tensor : call.in_tensors) {
      if (request.rows > 0) {  // TensorFlow finds an unsupported type when it joins rows, so not without rows
        if (Status s = CheckSupported(kOp, tensor.view.dtype); !s.ok()) return s;
      }
      Result<SharedView> kept = blocked ? Result<SharedView>(tensor) : Keep(ctx, tensor);
      if (!kept.ok()) return kept.status();
      request.tensors.push_back(*std::move(kept));
      request.bytes += BytesOf(tensor.view);
    }
    return request;
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "Batch: no memory for the call");
  }
}

Result<BatchOutput> NoRowsOutput(const Context& ctx, const BatchRequest& request) noexcept {
  try {
    std::vector<Tensor> tensors;
    for (const SharedView& tensor : request.tensors) {
      Result<Tensor> empty = AllocateOutput(ctx, static_cast<int>(tensors.size()), tensor.view.dtype, Shape{0});
      if (!empty.ok()) return empty.status();
      tensors.push_back(*std::move(empty));
    }
    const int outputs = static_cast<int>(tensors.size());
    return AssembleOutput(std::move(tensors), AllocateOutput(ctx, outputs, DType::kInt64, Shape{0}),
                          AllocateOutput(ctx, outputs + 1, DType::kInt64, Shape{0}));
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "Batch: no memory for the outputs");
  }
}

Status CheckBatchOptions(const BatchCall& call) noexcept {
  if (call.num_batch_threads < 1) {
    return InvalidArgument(kOp, "num_batch_threads must be positive; was ", call.num_batch_threads);
  }
  if (call.num_batch_threads > kMostBatchThreads) {
    return InvalidArgument(kOp, "num_batch_threads must be at most ", kMostBatchThreads, "; was ",
                           call.num_batch_threads);
  }
  if (call.max_batch_size == 0) {
    return InvalidArgument(kOp, "input_batch_size_limit must be positive; was ", call.max_batch_size);
  }
  if (call.batch_timeout_micros < 0) {
    return InvalidArgument(kOp, "batch_timeout_micros must be non-negative; was ", call.batch_timeout_micros);
  }
  return {};
}

Result<BatchOutput> AssembleOutput(std::vector<Tensor> tensors, Result<Tensor> index, Result<Tensor> id) noexcept {
  if (!index.ok()) return index.status();
  if (!id.ok()) return id.status();
  return BatchOutput{std::move(tensors), *std::move(index), *std::move(id)};
}

}  // namespace raggrad::batching
