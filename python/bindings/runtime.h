// The executor and the allocator that calls share, and errors as Python exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "call_memory.h"
#include "raggrad/core/context.h"
#include "raggrad/core/error_text.h"
#include "views.h"

namespace raggrad::python {

// The accumulation that the user asked for; unset: the device's default (Context::accumulation).
struct AccumulationArgument {
  std::optional<Accumulation> mode;
};

}  // namespace raggrad::python

// Python hands it over as None, "sequential", "fast" or "reproducible" (raggrad.settings).
template <>
struct nanobind::detail::type_caster<raggrad::python::AccumulationArgument> {
  NB_TYPE_CASTER(raggrad::python::AccumulationArgument, const_name("str"))

  bool from_python(handle source, uint32_t, cleanup_list*) noexcept {
    if (source.is_none()) return true;
    if (!isinstance<str>(source)) return false;
    const raggrad::Result<raggrad::Accumulation> mode = raggrad::AccumulationByName(borrow<str>(source).c_str());
    if (mode.ok()) value.mode = *mode;
    return mode.ok();
  }
};

namespace raggrad::python {

namespace nb = nanobind;

// An attribute of a Python module, looked up on first use and then kept in `slot` for good. The GIL guards the slot; a
// function's static object would hold a lock while Python code runs, and that can deadlock with the GIL.
nb::handle ImportOnce(PyObject*& slot, const char* module, const char* name);

// Raises the class of raggrad.errors that belongs to the code.
[[noreturn]] void Raise(const Status& status);

template <class... Parts>
[[noreturn]] void RaiseInvalid(const Parts&... parts) {
  Raise(MakeError(Code::kInvalidArgument, parts...));
}

// Replaces the executor. Running calls keep theirs, which is destroyed when the last of them ends.
void SetNumThreads(int64_t threads);
int GetNumThreads();

// The largest single request that the allocator grants; without a limit, as much as the machine has.
void SetMemoryLimit(std::optional<int64_t> bytes);
std::optional<int64_t> GetMemoryLimit();

// How much memory of dropped arrays the allocator keeps for the next ones.
void SetMemoryPool(int64_t bytes);
int64_t GetMemoryPool();

// The allocator of the bindings: a memory pool that grants requests up to the limit.
Allocator& BindingsAllocator() noexcept;
// The most bytes that it grants for one request.
size_t BindingsLimit() noexcept;

// The executor that SetNumThreads() made, or null for the library's default one.
std::shared_ptr<Executor> CurrentExecutor();

// The executor of one call, which Ctrl-C stops. The main thread looks for signals every 50 ms, between two tasks, so a
// call of one task costs nothing extra. A handler that raises stops the call.
class InterruptibleExecutor final : public Executor {
 public:
  // null: the library's default executor
  explicit InterruptibleExecutor(std::shared_ptr<Executor> executor) noexcept
      : kept_(std::move(executor)),
        executor_(kept_ ? *kept_ : DefaultExecutor()),
        num_workers_(executor_.num_workers()) {}

  int num_workers() const noexcept override { return num_workers_; }
  void Run(int64_t tasks, TaskRef body) noexcept override;
  bool stopped() const noexcept override { return stopped_.load(std::memory_order_relaxed); }

  // Raises what the handler raised.
  void RaiseInterrupt() const {
    if (interrupt_) std::rethrow_exception(interrupt_);
  }

 private:
  void LookForSignals() noexcept;

  const std::shared_ptr<Executor> kept_;
  Executor& executor_;
  const int num_workers_;  // asked for once: calls need it often
  std::chrono::steady_clock::time_point last_look_{};
  std::exception_ptr interrupt_;
  std::atomic<bool> stopped_ = false;
};

// Whether a call has so few numbers, 256 in all, that it may keep the GIL. It takes a few microseconds; to release the
// GIL and to take it back would be a twentieth of that. For operators whose outputs cannot be larger than the product
// of two operands. An operand without numbers may have any number of rows, which some calls count.
template <class... Views>
bool IsTiny(const Views&... operands) noexcept {
  constexpr int64_t kMost = 256;
  const auto count = [&](const TensorView& view) {
    const int64_t numbers = view.shape.NumElements().value_or(0);
    return numbers == 0 ? kMost : std::min(numbers, kMost);
  };
  return (count(operands) + ...) < kMost;
}

// Runs `call(ctx)` without the GIL, on this executor and with this host memory, and returns its result. `keep` has the
// operands: if they are in device memory, it knows the stream and the memory of their framework.
template <class F>
auto RunWithoutGil(const KeepAlive& keep, AccumulationArgument accumulation, Executor* executor, Allocator& memory,
                   const F& call, bool keep_gil = false) {
  if (const Result<Isa> isa = ChooseIsa({}); !isa.ok()) Raise(isa.status());
  std::optional<nb::gil_scoped_release> released;
  if (!keep_gil) released.emplace();
  Context ctx;
  ctx.allocator = &memory;
  ctx.executor = executor;
  ctx.accumulation = accumulation.mode;
  if (keep.source()) {
    ctx.device_allocator = keep.source()->memory;
    ctx.stream = keep.source()->stream;
  }
  return call(std::as_const(ctx));
}

// Runs `call(ctx)` and returns its value. Raises its error, or what a signal's handler raised meanwhile. `tiny`: the
// call may keep the GIL.
template <class F>
auto RunOperator(const KeepAlive& keep, AccumulationArgument accumulation, const F& call, bool tiny = false) {
  InterruptibleExecutor executor(CurrentExecutor());
  CallMemory memory(BindingsAllocator(), BindingsLimit());
  using Outputs = std::remove_cvref_t<decltype(*call(std::declval<const Context&>()))>;
  constexpr bool kOnlyTensors = requires(Outputs & outputs) { TensorsOf(outputs); };
  // Work on device memory may use host memory after the call.
  const bool own = kOnlyTensors && !keep.source();
  auto result = RunWithoutGil(keep, accumulation, &executor, own ? memory : BindingsAllocator(), call, tiny && own);
  executor.RaiseInterrupt();
  if (!result.ok()) Raise(result.status());
  if constexpr (kOnlyTensors) {
    if (own) {
      for (Tensor* const output : TensorsOf(*result)) memory.Release(*output);
    }
  }
  return *std::move(result);
}

// The same for operators that sum nothing.
template <class F>
auto RunOperator(const KeepAlive& keep, const F& call) {
  return RunOperator(keep, AccumulationArgument{}, call);
}

// The same for functions that change something in place and return a Status. Signals wait until they end, so that
// nothing is left half changed.
template <class F>
void RunInPlace(const KeepAlive& keep, AccumulationArgument accumulation, const F& call) {
  const std::shared_ptr<Executor> executor = CurrentExecutor();
  if (const Status status = RunWithoutGil(keep, accumulation, executor.get(), BindingsAllocator(), call); !status.ok())
    Raise(status);
}

}  // namespace raggrad::python
