#include "raggrad/ops/batching/batching.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "dtypes.h"
#include "operators.h"
#include "outputs.h"
#include "raggrad/cpu/float_environment.h"
#include "runtime.h"
#include "views.h"
#include "waiting.h"

namespace raggrad::python {
namespace {

using namespace nb::literals;

// raggrad.batching.Runtime is made of this. Its functions keep the GIL: the library never holds a lock for long, and
// taking the GIL again after a call of a microsecond can cost milliseconds if other threads want it, too. It is given
// away where a thread sleeps (InterruptibleSleeper) and where it copies much (CopyParallel).
class PyRuntime {
 public:
  explicit PyRuntime(const ResourceLimits& limits)
      : runtime_(std::make_shared<BatchingRuntime>(MakeContext(), limits)) {
    all().push_back(runtime_);
  }
  ~PyRuntime() {
    std::erase(all(), runtime_);
    const CallFromPython call_from_python;
    const WithoutGil released;  // the runtime's threads end here, and may want it
    runtime_.reset();
  }
  PyRuntime(const PyRuntime&) = delete;
  PyRuntime& operator=(const PyRuntime&) = delete;

  BatchingRuntime& get() const noexcept { return *runtime_; }

  static void CloseAll() {
    const CallFromPython call_from_python;
    std::vector<std::shared_ptr<BatchingRuntime>> runtimes = all();  // a copy: closing runs Python code
    for (const auto& runtime : runtimes) runtime->CloseAll();
    const WithoutGil released;
    runtimes.clear();
  }
  // When the interpreter ends: nobody comes back for the GIL.
  static void EndAll() {
    RefuseCalls();
    CloseAll();  // tells futures and callbacks
    AwaitCalls();
  }

 private:
  static Context MakeContext() {
    Context ctx;
    ctx.allocator = &CopyAllocator();
    ctx.executor = &CopyParallel();
    return ctx;
  }
  // Guarded by the GIL; never destroyed.
  static std::vector<std::shared_ptr<BatchingRuntime>>& all() {
    static auto* const runtimes = new std::vector<std::shared_ptr<BatchingRuntime>>;
    return *runtimes;
  }

  std::shared_ptr<BatchingRuntime> runtime_;
};

// What keeps the arrays of a piece alive, until whoever drops the piece.
std::shared_ptr<const void> Keeper(std::unique_ptr<KeepAlive> keep) {
  return std::shared_ptr<KeepAlive>(keep.release(), [](KeepAlive* kept) {
    const GilGuard guard;
    if (guard.ok()) delete kept;
  });
}

// Microseconds as Python gives them. Infinity, and what is beyond int64: no deadline.
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

// An integer attribute. What int64 cannot hold becomes its nearest number, which the operator refuses as TensorFlow
// does.
int64_t ReadInt(nb::handle value, std::string_view op, std::string_view name) {
  const nb::object number = nb::steal(PyNumber_Index(value.ptr()));
  if (!number.is_valid()) {
    PyErr_Clear();
    RaiseInvalid(op, ": ", name, ": expected an integer, got ", TypeName(value));
  }
  int overflow = 0;
  const int64_t result = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  return overflow == 0 ? result : overflow > 0 ? INT64_MAX : INT64_MIN;
}

TensorView ReadIds(nb::handle object, std::string_view op, std::string_view name, KeepAlive& keep) {
  return ViewOf(object, {.op = op, .name = name, .literal = DType::kInt64}, keep);
}

const LinkedCancellation* ReadToken(nb::handle token, std::string_view op) {
  if (token.is_none()) return nullptr;
  LinkedCancellation* linked = nullptr;
  if (!nb::try_cast(token, linked)) {
    RaiseInvalid(op, ": cancellation: expected None or a raggrad.batching.Cancellation, got ", TypeName(token));
  }
  return linked;
}

// How a call waits, from the arguments that all operators have.
struct WaitingArguments {
  std::optional<WaitTime> timeout;
  nb::handle cancellation;
  nb::handle done;  // None: the thread waits
};

// The first thing a call does: already reading its operands may run Python code.
class OperatorCall : CallFromPython {
 public:
  explicit OperatorCall(std::string_view op) {
    if (CallsRefused(/*has_gil=*/true)) Raise(MakeError(Code::kUnavailable, op, ": the interpreter ends"));
  }
};

// Makes the call in one of its two forms: `block(waiting)` gives a Result, `start(waiting, completion)` calls back.
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

nb::object UnbatchGrad(PyRuntime& self, nb::handle original_input, nb::handle batch_index, nb::handle grad,
                       nb::handle id, std::string container, std::string shared_name, nb::handle t,
                       nb::handle timeout_micros, nb::handle cancellation, bool strict, nb::handle done) {
  constexpr std::string_view kOp = "UnbatchGrad";
  const OperatorCall operator_call(kOp);
  Argument value{.op = kOp, .name = "grad", .attribute = "T", .stated = ParseDType(t, kOp, "T")};
  KeepAlive keep;
  auto keep_grad = std::make_unique<KeepAlive>();
  UnbatchGradCall call;
  call.resource = {std::move(container), std::move(shared_name)};
  call.strict = strict;
  value.literal = DTypeBeside(grad, original_input, value);
  call.grad.view = ViewOf(grad, value, *keep_grad);
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
                   nb::handle timeout_micros, std::string container, std::string shared_name, nb::handle t,
                   nb::handle wait_micros, nb::handle cancellation, nb::handle done) {
  constexpr std::string_view kOp = "Unbatch";
  const OperatorCall operator_call(kOp);
  KeepAlive keep;
  UnbatchCall call;
  call.resource = {std::move(container), std::move(shared_name)};
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

nb::object Batch(PyRuntime& self, const nb::sequence& in_tensors, nb::handle num_batch_threads,
                 nb::handle max_batch_size, nb::handle batch_timeout_micros, nb::handle max_enqueued_batches,
                 const nb::sequence& allowed_batch_sizes, std::string container, std::string shared_name,
                 std::string batching_queue, nb::handle t, nb::handle timeout_micros, nb::handle cancellation,
                 nb::handle done) {
  constexpr std::string_view kOp = "Batch";
  const OperatorCall operator_call(kOp);
  BatchCall call;
  call.resource = {std::move(container), std::move(shared_name)};
  auto keep = std::make_unique<KeepAlive>();
  const nb::list tensors(in_tensors);
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
  for (const nb::handle size : allowed_batch_sizes) {
    call.allowed_batch_sizes.push_back(ReadInt(size, kOp, "allowed_batch_sizes"));
  }
  call.batching_queue = std::move(batching_queue);
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

// Limits as Python has them: (pieces, bytes, waiters, age in microseconds, timeout in microseconds), None being none.
ResourceLimits ReadLimits(const nb::tuple& limits) {
  const auto number = [&](size_t i) {
    return limits[i].is_none() ? INT64_MAX : ReadInt(limits[i], "Limits", nb::str(nb::int_(i)).c_str());
  };
  if (nb::len(limits) != 5) throw nb::type_error("expected raggrad.batching.Limits");
  return {number(0), number(1), number(2), WaitTime(number(3)), WaitTime(number(4))};
}

nb::tuple WriteLimits(const ResourceLimits& limits) {
  const auto number = [](int64_t n) -> nb::object { return n == INT64_MAX ? nb::none() : nb::object(nb::int_(n)); };
  return nb::make_tuple(number(limits.max_pieces), number(limits.max_bytes), number(limits.max_waiters),
                        number(limits.max_piece_age.count()), number(limits.default_timeout.count()));
}

nb::tuple WriteStatistics(const ResourceStatistics& s) {
  return nb::make_tuple(s.calls, s.succeeded, s.failed, s.cancelled, s.deadline_exceeded, s.refused, s.pieces_expired,
                        s.pieces_dropped, s.pieces, s.bytes, s.waiters);
}

ResourceKind ReadKind(std::string_view kind) {
  if (kind == "Batch") return ResourceKind::kBatch;
  if (kind == "Unbatch") return ResourceKind::kUnbatch;
  if (kind == "UnbatchGrad") return ResourceKind::kUnbatchGrad;
  RaiseInvalid("kind: expected 'Batch', 'Unbatch' or 'UnbatchGrad', got '", kind, "'");
}

template <class T>
T ValueOrRaise(Result<T> result) {
  if (!result.ok()) Raise(result.status());
  return *std::move(result);
}

void OkOrRaise(const Status& status) {
  if (!status.ok()) Raise(status);
}

void DefineCancellation(nb::module_& module) {
  nb::class_<LinkedCancellation>(module, "Cancellation", R"(Ends waiting calls early: they raise CancelledError.

Cancellation(parent=None): a token with a parent is also cancelled when the parent is. One token may be given to any
number of calls, from any number of threads; a cancelled one stays cancelled, and calls that would wait fail at once.

>>> import raggrad
>>> token = raggrad.batching.Cancellation()
>>> token.cancel()
>>> token.cancelled
True
)",
                                 nb::is_weak_referenceable())
      .def(nb::init<const LinkedCancellation*>(), "parent"_a.none() = nb::none())
      .def(
          "cancel",
          [](const LinkedCancellation& self) {
            const CallFromPython call_from_python;
            self.token().Cancel();
          },
          "Ends the waits of all calls that have this token, and of later ones.")
      .def_prop_ro("cancelled", [](const LinkedCancellation& self) { return self.token().cancelled(); });
}

void DefineResources(nb::class_<PyRuntime>& runtime) {
  runtime
      .def(
          "set_limits",
          [](PyRuntime& self, std::string_view kind, std::string container, std::string name, const nb::tuple& limits) {
            const CallFromPython call_from_python;
            OkOrRaise(
                self.get().SetLimits(ReadKind(kind), {std::move(container), std::move(name)}, ReadLimits(limits)));
          })
      .def("get_limits",
           [](PyRuntime& self, std::string_view kind, std::string container, std::string name) {
             return WriteLimits(
                 ValueOrRaise(self.get().Limits(ReadKind(kind), {std::move(container), std::move(name)})));
           })
      .def("statistics",
           [](PyRuntime& self, std::string_view kind, std::string container, std::string name) {
             return WriteStatistics(
                 ValueOrRaise(self.get().Statistics(ReadKind(kind), {std::move(container), std::move(name)})));
           })
      .def("close_resource",
           [](PyRuntime& self, std::string_view kind, std::string container, std::string name) {
             const CallFromPython call_from_python;
             OkOrRaise(self.get().Close(ReadKind(kind), {std::move(container), std::move(name)}));
           })
      .def("close_all", [](PyRuntime& self) {
        const CallFromPython call_from_python;
        self.get().CloseAll();
      });
}

}  // namespace

void DefineBatching(nb::module_& module) {
  DefineCancellation(module);
  nb::class_<PyRuntime> runtime(module, "BatchingRuntime", "What raggrad.batching.Runtime is made of.",
                                nb::is_weak_referenceable());
  runtime
      .def(
          "__init__", [](PyRuntime* self, const nb::tuple& limits) { new (self) PyRuntime(ReadLimits(limits)); },
          "limits"_a)
      .def("unbatch_grad", &UnbatchGrad, "original_input"_a.none(), "batch_index"_a.none(), "grad"_a.none(),
           "id"_a.none(), "container"_a, "shared_name"_a, "T"_a.none(), "timeout_micros"_a.none(),
           "cancellation"_a.none(), "strict"_a, "done"_a.none())
      .def("unbatch", &Unbatch, "batched_tensor"_a.none(), "batch_index"_a.none(), "id"_a.none(),
           "timeout_micros"_a.none(), "container"_a, "shared_name"_a, "T"_a.none(), "wait_micros"_a.none(),
           "cancellation"_a.none(), "done"_a.none())
      .def("batch", &Batch, "in_tensors"_a, "num_batch_threads"_a.none(), "max_batch_size"_a.none(),
           "batch_timeout_micros"_a.none(), "max_enqueued_batches"_a.none(), "allowed_batch_sizes"_a, "container"_a,
           "shared_name"_a, "batching_queue"_a, "T"_a.none(), "timeout_micros"_a.none(), "cancellation"_a.none(),
           "done"_a.none());
  DefineResources(runtime);
  module.def("sleeping_threads", &SleepingThreads, "The idents of threads that wait for a call to end.");
  module.def("repeat_in_background", &RepeatInBackground, "look"_a,
             "Calls `look` every 20 ms from a thread of its own, until it returns False.");
  module.def("close_all_runtimes", &PyRuntime::CloseAll);
  module.def("end_batching", &PyRuntime::EndAll, "Called when the interpreter ends.");
  module.def("forget_calls", &ForgetCalls, "Called in a child of fork().");
}

}  // namespace raggrad::python
