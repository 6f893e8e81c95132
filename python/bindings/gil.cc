#include "gil.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "runtime.h"

namespace raggrad::python {
namespace {

thread_local bool holds_gil = false;
thread_local int64_t my_guards = 0;  // nested guards of this thread

struct ThreadsInside {
  // Returns false if calls are refused. A thread that has the GIL is counted all the same.
  bool Enter(bool has_gil) noexcept {
    const std::lock_guard lock(mutex);
    if (refused && !has_gil) return false;
    ++my_guards;
    ++inside;
    return true;
  }
  void Leave(int64_t guards = 1) noexcept {
    const std::lock_guard lock(mutex);
    my_guards -= guards;
    inside -= guards;
    left.notify_all();
  }

  std::mutex mutex;
  std::condition_variable left;
  int64_t inside = 0;
  std::atomic<bool> refused = false;  // written under the lock
  std::thread::id refuser;            // the thread that refused them
};

// Never destroyed: threads may outlive the interpreter's static objects.
alignas(ThreadsInside) std::byte threads_inside_storage[sizeof(ThreadsInside)];
ThreadsInside* threads_inside = new (threads_inside_storage) ThreadsInside;

constexpr size_t kMuch = size_t{2} << 20;  // bytes that take some 100 us to copy
thread_local size_t last_block = 0;        // size of the block that the thread fills next

class BlockAllocator final : public Allocator {
 public:
  void* Allocate(size_t bytes) noexcept override {
    last_block = bytes;
    return BindingsAllocator().Allocate(bytes);
  }
  void Deallocate(void* pointer, size_t bytes) noexcept override { BindingsAllocator().Deallocate(pointer, bytes); }
};

class ReleasingExecutor final : public Executor {
 public:
  int num_workers() const noexcept override { return GetNumThreads(); }
  void Run(int64_t tasks, TaskRef body) noexcept override {
    std::optional<WithoutGil> released;
    if (holds_gil && last_block > kMuch) released.emplace();
    const std::shared_ptr<Executor> executor = CurrentExecutor();
    (executor ? *executor : DefaultExecutor()).Run(tasks, body);
  }
};

template <class T>
T& NeverDestroyed() noexcept {
  alignas(T) static std::byte storage[sizeof(T)];
  static T* const object = new (storage) T;
  return *object;
}

}  // namespace

CallFromPython::CallFromPython() noexcept : before_(std::exchange(holds_gil, true)) { threads_inside->Enter(true); }
CallFromPython::~CallFromPython() {
  holds_gil = before_;
  threads_inside->Leave();
}

WithoutGil::WithoutGil() noexcept : state_((holds_gil = false, PyEval_SaveThread())) {}

WithoutGil::~WithoutGil() {
  CallsRefused(/*has_gil=*/false);
  PyEval_RestoreThread(state_);
  holds_gil = true;
}

GilGuard::GilGuard() noexcept : before_(holds_gil), ok_(before_ || threads_inside->Enter(/*has_gil=*/false)) {
  if (before_ || !ok_) return;
  state_ = PyGILState_Ensure();
  holds_gil = true;
}

GilGuard::~GilGuard() {
  if (before_ || !ok_) return;
  holds_gil = false;
  PyGILState_Release(state_);
  threads_inside->Leave();
}

void RefuseCalls() noexcept {
  const std::lock_guard lock(threads_inside->mutex);
  threads_inside->refuser = std::this_thread::get_id();
  threads_inside->refused = true;
}

void AwaitCalls() {
  const nb::gil_scoped_release released;  // threads inside may need the GIL to leave
  std::unique_lock lock(threads_inside->mutex);
  threads_inside->left.wait(lock, [] { return threads_inside->inside <= 0; });
}

bool CallsRefused(bool has_gil) noexcept {
  if (!threads_inside->refused) return false;
  if (threads_inside->refuser == std::this_thread::get_id()) return true;
  if (has_gil) PyEval_SaveThread();
  threads_inside->Leave(my_guards);
  for (;;) pause();
}

void ForgetCalls() noexcept {
  threads_inside = new (threads_inside_storage) ThreadsInside;  // a thread that is gone may hold the old lock
  threads_inside->inside = my_guards;
}

Allocator& CopyAllocator() noexcept { return NeverDestroyed<BlockAllocator>(); }
Executor& CopyExecutor() noexcept { return NeverDestroyed<ReleasingExecutor>(); }

}  // namespace raggrad::python
