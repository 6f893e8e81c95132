#include "batching_calls.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "attributes.h"
#include "dtypes.h"
#include "outputs.h"
#include "raggrad/cpu/float_environment.h"
#include "runtime.h"
#include "views.h"
#include "waiting.h"

namespace raggrad::python {
namespace {

// Keeps the arrays of a piece alive until some thread drops the piece.
std::shared_ptr<const void> Keeper(std::unique_ptr<KeepAlive> keep) {
  return std::shared_ptr<KeepAlive>(keep.release(), [](KeepAlive* kept) {
    const GilGuard guard;
    if (guard.ok()) delete kept;
  });
}

// Microseconds as Python gives them. Infinity and numbers beyond int64 mean no deadline.
std::optional<WaitTime> ReadTimeout(nb::handle micros, std::string_view op, std::string_view name) {
  if (micros.is_none()) return {};
  const double number = PyFloat_AsDouble(micros.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    RaiseInvalid(op, ": ", name, ": expected None or a number of microseconds, got ", TypeName(micros));
  }
  if (std::isnan(number)) RaiseInvalid(op, ": ", name, ": expected a number of microseconds, got nan");
  return cpu::InFloatEnvironment([&] {
    if (number >= static_cast<double>(INT64_MAX)) return kNoDeadline;
    return WaitTime(static_cast<int64_t>(std::max(number, 0.0)));
  });
}

TensorView ReadIds(nb::handle object, std::string_view op, std::string_view name, KeepAlive& keep) {
  return ViewOf(object, {.op = op, .name = name, .literal = DType::kInt64}, keep);
}

ResourceName ReadResource(nb::handle container, nb::handle shared_name, std::string_view op) {
  return {ReadText(container, op, "container"), ReadText(shared_name, op, "shared_name")};
}

const LinkedCancellation* ReadToken(nb::handle token, std::string_view op) {
  if (token.is_none()) return nullptr;
  LinkedCancellation* linked = nullptr;
  if (!nb::try_cast(token, linked)) {
    RaiseInvalid(op, ": cancellation: expected None or a raggrad.batching.Cancellation, got ", TypeName(token));
  }
  return linked;
}

// The arguments of every operator that say how it waits.
struct WaitingArguments {
  std::optional<WaitTime> timeout;
  nb::handle cancellation;
  nb::handle done;  // None: the thread waits
};

// Begins a call. It comes before all else in an operator: even reading operands may run Python code.
class OperatorCall : CallFromPython {
 public:
  explicit OperatorCall(std::string_view op) {
    if (CallsRefused(/*has_gil=*/true)) Raise(MakeError(Code::kUnavailable, op, ": the interpreter ends"));
  }
};

// Makes the call in one of two forms: `block(waiting)` returns a Result, `start(waiting, completion)` calls back.
// `convert(value, like)` makes the Python object.
template <class T, class Block, class Start, class Convert>
nb::object Run(std::string_view op, const WaitingArguments& arguments, nb::handle like, const Block& block,
               const Start& start, const Convert& convert) {
  const LinkedCancellation* const parent = ReadToken(arguments.cancellation, op);
  if (!arguments.done.is_none()) {
    Waiting waiting;
    waiting.timeout = arguments.timeout;
    if (parent != nullptr) waiting.cancellation = parent->token();
    start(waiting, PendingCall::Completes<T>(std::make_unique<PendingCall>(nb::borrow(arguments.done), nb::borrow(like),
                                                                           nb::borrow(arguments.cancellation)),
                                             convert));
    return nb::none();
  }
  const LinkedCancellation token(parent);
  InterruptibleSleeper sleeper(token.token());
  Result<T> result = block(Waiting{arguments.timeout, token.token(), &sleeper});
  sleeper.RaiseInterrupt();
  if (!result.ok()) Raise(result.status());
  return convert(*std::move(result), like);
}

nb::object ToPython(Tensor tensor, nb::handle like) { return MakeOutput(std::move(tensor), like); }

nb::object BatchToPython(BatchOutput output, nb::handle like) {
  nb::list tensors;
  for (Tensor& tensor : output.batched_tensors) tensors.append(MakeOutput(std::move(tensor), like));
  return nb::make_tuple(tensors, MakeOutput(std::move(output.batch_index), like),
                        MakeOutput(std::move(output.id), like));
}

// A literal takes the dtype of the array beside it, as in TensorFlow.
DType DTypeBeside(nb::handle object, nb::handle other, const Argument& argument) {
  if (argument.stated != DType::kInvalid || !IsLiteral(object) || IsLiteral(other)) return argument.literal;
  KeepAlive keep;
  return ViewOf(other, argument, keep).dtype;
}

}  // namespace

nb::object UnbatchGrad(PyRuntime& self, nb::handle original_input, nb::handle batch_index, nb::handle grad,
                       nb::handle id, nb::handle container, nb::handle shared_name, nb::handle t,
                       nb::handle timeout_micros, nb::handle cancellation, nb::handle strict, nb::handle done) {
  constexpr std::string_view kOp = "UnbatchGrad";
  const OperatorCall operator_call(kOp);
  Argument value{.op = kOp, .name = "grad", .attribute = "T", .stated = ParseDType(t, kOp, "T")};
  KeepAlive keep;
  auto keep_grad = std::make_unique<KeepAlive>();
  UnbatchGradCall call;
  call.resource = ReadResource(container, shared_name, kOp);
  call.strict = ReadFlag(strict, kOp, "strict");
  value.literal = DTypeBeside(grad, original_input, value);
  call.grad.view = ViewOf(grad, value, *keep_grad);
  if (!call.grad.view.device.is_cpu()) {
    Raise(MakeError(Code::kUnimplemented, kOp, ": device memory is for C++ and C [grad: expected host memory, got ",
                    call.grad.view.device, "]"));
  }
  call.grad.keep_alive = Keeper(std::move(keep_grad));
  value.name = "original_input";
  value.literal = call.grad.view.dtype;
  call.original_input = ViewOf(original_input, value, keep);
  call.batch_index = ReadIds(batch_index, kOp, "batch_index", keep);
  call.id = ReadIds(id, kOp, "id", keep);
  return Run<Tensor>(
      kOp, {ReadTimeout(timeout_micros, kOp, "timeout_micros"), cancellation, done}, original_input,
      [&](const Waiting& waiting) {
        call.waiting = waiting;
        Result<Tensor> result = self.get().UnbatchGrad(call);
        if (result.ok() && result->shape()[0] == 0) LetOthersRun();
        return result;
      },
      [&](const Waiting& waiting, Completion<Tensor> completion) {
        call.waiting = waiting;
        self.get().UnbatchGradAsync(call, std::move(completion));
      },
      &ToPython);
}

nb::object Unbatch(PyRuntime& self, nb::handle batched_tensor, nb::handle batch_index, nb::handle id,
                   nb::handle timeout_micros, nb::handle container, nb::handle shared_name, nb::handle t,
                   nb::handle wait_micros, nb::handle cancellation, nb::handle done) {
  constexpr std::string_view kOp = "Unbatch";
  const OperatorCall operator_call(kOp);
  KeepAlive keep;
  UnbatchCall call;
  call.resource = ReadResource(container, shared_name, kOp);
  call.batched_tensor = ViewOf(
      batched_tensor, {.op = kOp, .name = "batched_tensor", .attribute = "T", .stated = ParseDType(t, kOp, "T")}, keep);
  call.batch_index = ReadIds(batch_index, kOp, "batch_index", keep);
  call.id = ReadIds(id, kOp, "id", keep);
  if (!timeout_micros.is_none()) call.timeout_micros = ReadInt(timeout_micros, kOp, "timeout_micros");
  return Run<Tensor>(
      kOp, {ReadTimeout(wait_micros, kOp, "wait_micros"), cancellation, done}, batched_tensor,
      [&](const Waiting& waiting) {
        call.waiting = waiting;
        return self.get().Unbatch(call);
      },
      [&](const Waiting& waiting, Completion<Tensor> completion) {
        call.waiting = waiting;
        self.get().UnbatchAsync(call, std::move(completion));
      },
      &ToPython);
}

nb::object Batch(PyRuntime& self, nb::handle in_tensors, nb::handle num_batch_threads, nb::handle max_batch_size,
                 nb::handle batch_timeout_micros, nb::handle max_enqueued_batches, nb::handle allowed_batch_sizes,
                 nb::handle container, nb::handle shared_name, nb::handle batching_queue, nb::handle t,
                 nb::handle timeout_micros, nb::handle cancellation, nb::handle done) {
  constexpr std::string_view kOp = "Batch";
  const OperatorCall operator_call(kOp);
  if (!nb::isinstance<nb::list>(in_tensors) && !nb::isinstance<nb::tuple>(in_tensors)) {  // an array is one, too
    RaiseInvalid(kOp, ": in_tensors: expected a list of arrays, got ", TypeName(in_tensors));
  }
  BatchCall call;
  call.resource = ReadResource(container, shared_name, kOp);
  auto keep = std::make_unique<KeepAlive>();
  const nb::list tensors(in_tensors);
  if (!t.is_none() && !PySequence_Check(t.ptr())) {
    RaiseInvalid(kOp, ": T: expected None or a list of dtypes, got ", TypeName(t));
  }
  if (!t.is_none() && nb::len(t) != nb::len(tensors)) {
    RaiseInvalid(kOp, ": T says ", nb::len(t), " tensors, in_tensors has ", nb::len(tensors));
  }
  for (size_t i = 0; i < nb::len(tensors); ++i) {
    const nb::object stated = t.is_none() ? nb::none() : nb::borrow(t[i]);
    const std::string name = "in_tensors[" + std::to_string(i) + "]";
    const Argument argument{.op = kOp, .name = name, .attribute = "T", .stated = ParseDType(stated, kOp, "T")};
    call.in_tensors.push_back({ViewOf(tensors[i], argument, *keep)});
  }
  const std::shared_ptr<const void> keeper = Keeper(std::move(keep));
  for (SharedView& tensor : call.in_tensors) tensor.keep_alive = keeper;
  call.num_batch_threads = ReadInt(num_batch_threads, kOp, "num_batch_threads");
  call.max_batch_size = ReadInt(max_batch_size, kOp, "max_batch_size");
  call.batch_timeout_micros = ReadInt(batch_timeout_micros, kOp, "batch_timeout_micros");
  call.max_enqueued_batches = ReadInt(max_enqueued_batches, kOp, "max_enqueued_batches");
  if (!PySequence_Check(allowed_batch_sizes.ptr())) {
    RaiseInvalid(kOp, ": allowed_batch_sizes: expected a list of integers, got ", TypeName(allowed_batch_sizes));
  }
  for (const nb::handle size : nb::borrow(allowed_batch_sizes)) {
    call.allowed_batch_sizes.push_back(ReadInt(size, kOp, "allowed_batch_sizes"));
  }
  call.batching_queue = ReadText(batching_queue, kOp, "batching_queue");
  const nb::object like = nb::len(tensors) == 0 ? nb::none() : nb::borrow(tensors[0]);
  return Run<BatchOutput>(
      kOp, {ReadTimeout(timeout_micros, kOp, "timeout_micros"), cancellation, done}, like,
      [&](const Waiting& waiting) {
        call.waiting = waiting;
        return self.get().Batch(call);
      },
      [&](const Waiting& waiting, Completion<BatchOutput> completion) {
        call.waiting = waiting;
        self.get().BatchAsync(call, std::move(completion));
      },
      &BatchToPython);
}

}  // namespace raggrad::python
