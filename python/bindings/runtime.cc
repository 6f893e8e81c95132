#include "runtime.h"

#include <unistd.h>

#include <atomic>
#include <thread>

#include "raggrad/core/fork.h"
#include "raggrad/core/pool_allocator.h"

namespace raggrad::python {
namespace {

// More workers than any machine has cores would cost memory and bring nothing.
constexpr int64_t kMostThreads = 4096;

struct SharedExecutor {
  std::atomic<int> lock{0};
  std::shared_ptr<Executor> current;
};

// A child of fork() lacks the thread that may have held the lock. Whatever that thread was changing is abandoned then.
class ExecutorLock : public ForkSafeLock {
 public:
  explicit ExecutorLock(SharedExecutor& shared) noexcept : ForkSafeLock(shared.lock) {
    if (was_abandoned()) new (&shared.current) std::shared_ptr<Executor>;
  }
};

// Never destroyed: calls of daemon threads may outlive the interpreter's static objects.
SharedExecutor& TheExecutor() {
  static SharedExecutor* const shared = new SharedExecutor;
  return *shared;
}

class LimitedAllocator final : public Allocator {
 public:
  void* Allocate(size_t bytes) noexcept override {
    return bytes <= limit.load(std::memory_order_relaxed) ? pool.Allocate(bytes) : nullptr;
  }
  void Deallocate(void* pointer, size_t bytes) noexcept override { pool.Deallocate(pointer, bytes); }

  std::atomic<size_t> limit{SIZE_MAX};
  PoolAllocator pool;
};

LimitedAllocator& TheAllocator() noexcept {
  // Never destroyed, so that arrays may outlive the module.
  alignas(LimitedAllocator) static std::byte storage[sizeof(LimitedAllocator)];
  static LimitedAllocator* const allocator = new (storage) LimitedAllocator;
  return *allocator;
}

}  // namespace

nb::handle ImportOnce(PyObject*& slot, const char* module, const char* name) {
  if (slot == nullptr) slot = nb::object(nb::module_::import_(module).attr(name)).release().ptr();
  return slot;
}

void Raise(const Status& status) {
  const std::string_view code = CodeName(status.code());
  const nb::object error_class =
      nb::module_::import_("raggrad.errors").attr("class_for")(nb::str(code.data(), code.size()));
  const std::string_view message = status.message();
  PyErr_SetObject(error_class.ptr(), nb::str(message.data(), message.size()).ptr());
  throw nb::python_error();
}

void SetNumThreads(int64_t threads) {
  if (threads < 1 || threads > kMostThreads) {
    RaiseInvalid("set_num_threads: expected 1 to ", kMostThreads, " threads, got ", threads);
  }
  const nb::gil_scoped_release released;
  std::shared_ptr<Executor> executor = MakeThreadPool(static_cast<int>(threads));
  const ExecutorLock lock(TheExecutor());
  TheExecutor().current.swap(executor);
}

std::shared_ptr<Executor> CurrentExecutor() {
  const ExecutorLock lock(TheExecutor());
  return TheExecutor().current;
}

void InterruptibleExecutor::Run(int64_t tasks, TaskRef body) noexcept {
  const auto caller = std::this_thread::get_id();
  const auto task = [&](int64_t t) {
    body(t);
    if (std::this_thread::get_id() == caller) LookForSignals();
  };
  executor_.Run(tasks, task);
}

void InterruptibleExecutor::LookForSignals() noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr auto kOftenEnough = std::chrono::milliseconds(50);
  const Clock::time_point now = Clock::now();
  if (last_look_ == Clock::time_point{}) last_look_ = now;
  if (now - last_look_ < kOftenEnough || stopped()) return;
  last_look_ = now;
  if (gettid() != getpid()) return;  // handlers run on the main thread; others need not fight for the GIL
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return;
  interrupt_ = std::make_exception_ptr(nb::python_error());
  stopped_.store(true, std::memory_order_relaxed);
}

int GetNumThreads() {
  const std::shared_ptr<Executor> executor = CurrentExecutor();
  return executor ? executor->num_workers() : DefaultExecutor().num_workers();
}

Allocator& BindingsAllocator() noexcept { return TheAllocator(); }

size_t BindingsLimit() noexcept { return TheAllocator().limit.load(std::memory_order_relaxed); }

void SetMemoryLimit(std::optional<int64_t> bytes) {
  if (bytes && *bytes < 0) RaiseInvalid("set_memory_limit: expected None or a number of bytes >= 0, got ", *bytes);
  TheAllocator().limit = bytes ? static_cast<size_t>(*bytes) : SIZE_MAX;
}

std::optional<int64_t> GetMemoryLimit() {
  const size_t limit = TheAllocator().limit;
  if (limit == SIZE_MAX) return std::nullopt;
  return static_cast<int64_t>(limit);
}

void SetMemoryPool(int64_t bytes) {
  if (bytes < 0) RaiseInvalid("set_memory_pool: expected a number of bytes >= 0, got ", bytes);
  TheAllocator().pool.SetMaxIdleBytes(static_cast<size_t>(bytes));
}

int64_t GetMemoryPool() { return static_cast<int64_t>(TheAllocator().pool.max_idle_bytes()); }

}  // namespace raggrad::python
