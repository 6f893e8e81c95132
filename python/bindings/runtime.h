// What a call takes from the process: the door's thread pool, its allocator, and how errors leave it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "raggrad/core/context.h"
#include "raggrad/core/error_text.h"

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
std::shared_ptr<Parallel> CurrentPool();

// Runs `call(ctx)` without the GIL and gives back its value, or raises its error.
template <class F>
auto RunOperator(bool fast, const F& call) {
  if (const Result<Isa> isa = ChooseIsa({}); !isa.ok()) Raise(isa.status());
  auto result = [&] {
    const nb::gil_scoped_release released;
    const std::shared_ptr<Parallel> pool = CurrentPool();
    Context ctx;
    ctx.allocator = &DoorAllocator();
    ctx.parallel = pool.get();
    if (fast) ctx.accumulation = Accumulation::kFast;
    return call(std::as_const(ctx));
  }();
  if (!result.ok()) Raise(result.status());
  return *std::move(result);
}

}  // namespace raggrad::python
