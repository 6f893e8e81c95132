#include "raggrad/ops/batching/batching.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "attributes.h"
#include "batching_calls.h"
#include "gil.h"
#include "operators.h"
#include "py_runtime.h"
#include "runtime.h"
#include "waiting.h"

namespace raggrad::python {
namespace {

using namespace nb::literals;

// Limits as Python has them: (pieces, bytes, waiters, age in microseconds, timeout in microseconds). None: no limit.
ResourceLimits ReadLimits(const nb::tuple& limits) {
  if (nb::len(limits) != 5) throw nb::type_error("expected raggrad.batching.Limits");
  const auto number = [&](size_t i, std::string_view name) {
    return limits[i].is_none() ? INT64_MAX : ReadInt(limits[i], "Limits", name);
  };
  return {number(0, "max_pieces"), number(1, "max_bytes"), number(2, "max_waiters"),
          WaitTime(number(3, "max_piece_age_micros")), WaitTime(number(4, "default_timeout_micros"))};
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
  nb::class_<PyRuntime> runtime(module, "BatchingRuntime", "The C++ part of raggrad.batching.Runtime.",
                                nb::is_weak_referenceable());
  runtime
      .def(
          "__init__", [](PyRuntime* self, const nb::tuple& limits) { new (self) PyRuntime(ReadLimits(limits)); },
          "limits"_a)
      .def("unbatch_grad", &UnbatchGrad, "original_input"_a.none(), "batch_index"_a.none(), "grad"_a.none(),
           "id"_a.none(), "container"_a.none(), "shared_name"_a.none(), "T"_a.none(), "timeout_micros"_a.none(),
           "cancellation"_a.none(), "strict"_a.none(), "done"_a.none())
      .def("unbatch", &Unbatch, "batched_tensor"_a.none(), "batch_index"_a.none(), "id"_a.none(),
           "timeout_micros"_a.none(), "container"_a.none(), "shared_name"_a.none(), "T"_a.none(),
           "wait_micros"_a.none(), "cancellation"_a.none(), "done"_a.none())
      .def("batch", &Batch, "in_tensors"_a.none(), "num_batch_threads"_a.none(), "max_batch_size"_a.none(),
           "batch_timeout_micros"_a.none(), "max_enqueued_batches"_a.none(), "allowed_batch_sizes"_a.none(),
           "container"_a.none(), "shared_name"_a.none(), "batching_queue"_a.none(), "T"_a.none(),
           "timeout_micros"_a.none(), "cancellation"_a.none(), "done"_a.none());
  DefineResources(runtime);
  module.def("sleeping_threads", &SleepingThreads, "The idents of threads that wait for a call to end.");
  module.def("repeat_in_background", &RepeatInBackground, "look"_a,
             "Calls `look` every 20 ms from a thread of its own, until it returns False.");
  module.def("close_all_runtimes", &PyRuntime::CloseAll);
  module.def("end_batching", &PyRuntime::EndAll, "Called when the interpreter ends.");
  module.def("forget_calls", &ForgetCalls, "Called in a child of fork().");
}

}  // namespace raggrad::python
