// What a call takes from the process: the door's thread pool, its allocator, and how errors leave it.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "raggrad/core/context.h"
#include "raggrad/core/error_text.h"
#include "raggrad/core/stoppable_executor.h"

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

// Replaces the door's pool. Calls that are running keep the one they started with; it goes when the last of them ends.
void SetNumThreads(int64_t threads);
int GetNumThreads();

// The largest single request that the door's allocator grants; nothing: as much as the machine has.
void SetMemoryLimit(std::optional<int64_t> bytes);
std::optional<int64_t> GetMemoryLimit();

// How much memory of dropped arrays the door's allocator keeps for the next ones.
void SetMemoryPool(int64_t bytes);
int64_t GetMemoryPool();

// Memory of the door: pooled, below the limit.
Allocator& DoorAllocator() noexcept;

// The door's pool, or null for the library's default one.
std::shared_ptr<Executor> CurrentPool();

// The door's pool for one call, which Ctrl-C stops. Signals are looked for on the main thread, every 50 ms, between two
// tasks: a call of one task has no cost. A handler that raises stops the call.
class InterruptiblePool final : public StoppableExecutor {
 public:
  explicit InterruptiblePool(std::shared_ptr<Executor> pool) noexcept : pool_(std::move(pool)) {}

  int num_workers() const noexcept override { return pool().num_workers(); }
  void Run(int64_t tasks, TaskRef body) noexcept override;
  bool stopped() const noexcept override { return stopped_.load(std::memory_order_relaxed); }

  // Raises what the handler raised.
  void RaiseInterrupt() const {
    if (interrupt_) std::rethrow_exception(interrupt_);
  }

 private:
  Executor& pool() const noexcept { return pool_ ? *pool_ : DefaultExecutor(); }
  void LookForSignals() noexcept;

  const std::shared_ptr<Executor> pool_;
  std::chrono::steady_clock::time_point last_look_{};
  std::exception_ptr interrupt_;
  std::atomic<bool> stopped_ = false;
};

// Runs `call(ctx)` without the GIL, on this pool, and gives back its result.
template <class F>
auto RunWithoutGil(bool fast, Executor* pool, const F& call) {
  if (const Result<Isa> isa = ChooseIsa({}); !isa.ok()) Raise(isa.status());
  const nb::gil_scoped_release released;
  Context ctx;
  ctx.allocator = &DoorAllocator();
  ctx.executor = pool;
  if (fast) ctx.accumulation = Accumulation::kFast;
  return call(std::as_const(ctx));
}

// Runs `call(ctx)` and gives back its value, or raises its error, or what a signal's handler raised meanwhile.
template <class F>
auto RunOperator(bool fast, const F& call) {
  InterruptiblePool pool(CurrentPool());
  auto result = RunWithoutGil(fast, &pool, call);
  pool.RaiseInterrupt();
  if (!result.ok()) Raise(result.status());
  return *std::move(result);
}

// The same for functions that change something in place and give back a Status: signals have to wait until they end, so
// that nothing is left half changed.
template <class F>
void RunInPlace(bool fast, const F& call) {
  const std::shared_ptr<Executor> pool = CurrentPool();
  if (const Status status = RunWithoutGil(fast, pool.get(), call); !status.ok()) Raise(status);
}

}  // namespace raggrad::python
