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
thread_local int64_t my_visits = 0;  // one within the other

struct Visitors {
  // False if visits are refused; a call of a thread that has the GIL is counted all the same.
  bool Enter(bool has_gil) noexcept {
    const std::lock_guard lock(mutex);
    if (refused && !has_gil) return false;
    ++my_visits;
    ++inside;
    return true;
  }
  void Leave(int64_t visits = 1) noexcept {
    const std::lock_guard lock(mutex);
    my_visits -= visits;
    inside -= visits;
    left.notify_all();
  }

  std::mutex mutex;
  std::condition_variable left;
  int64_t inside = 0;
  std::atomic<bool> refused = false;  // written under the lock
  std::thread::id last;               // who refused them
};

// Never destroyed: threads may outlive the interpreter's static objects.
alignas(Visitors) std::byte visitors_storage[sizeof(Visitors)];
Visitors* visitors = new (visitors_storage) Visitors;

constexpr size_t kMuch = size_t{2} << 20;
thread_local size_t last_block = 0;  // what the thread fills next

class BlockAllocator final : public Allocator {
 public:
  void* Allocate(size_t bytes) noexcept override {
    last_block = bytes;
    return DoorAllocator().Allocate(bytes);
  }
  void Deallocate(void* pointer, size_t bytes) noexcept override { DoorAllocator().Deallocate(pointer, bytes); }
};

class CopyPool final : public Parallel {
 public:
  int num_workers() const noexcept override { return GetNumThreads(); }
  void Run(int64_t tasks, TaskRef body) noexcept override {
    std::optional<WithoutGil> released;
    if (holds_gil && last_block > kMuch) released.emplace();
    const std::shared_ptr<Parallel> pool = CurrentPool();
    (pool ? *pool : DefaultParallel()).Run(tasks, body);
  }
};

template <class T>
T& NeverDestroyed() noexcept {
  alignas(T) static std::byte storage[sizeof(T)];
  static T* const object = new (storage) T;
  return *object;
}

}  // namespace

CallFromPython::CallFromPython() noexcept : before_(std::exchange(holds_gil, true)) { visitors->Enter(true); }
CallFromPython::~CallFromPython() {
  holds_gil = before_;
  visitors->Leave();
}

WithoutGil::WithoutGil() noexcept : state_((holds_gil = false, PyEval_SaveThread())) {}

WithoutGil::~WithoutGil() {
  VisitsRefused(/*has_gil=*/false);
  PyEval_RestoreThread(state_);
  holds_gil = true;
}

GilVisit::GilVisit() noexcept : before_(holds_gil), welcome_(before_ || visitors->Enter(/*has_gil=*/false)) {
  if (before_ || !welcome_) return;
  state_ = PyGILState_Ensure();
  holds_gil = true;
}

GilVisit::~GilVisit() {
  if (before_ || !welcome_) return;
  holds_gil = false;
  PyGILState_Release(state_);
  visitors->Leave();
}

void RefuseVisits() noexcept {
  const std::lock_guard lock(visitors->mutex);
  visitors->last = std::this_thread::get_id();
  visitors->refused = true;
}

void AwaitVisitors() {
  const nb::gil_scoped_release released;  // for those who are inside
  std::unique_lock lock(visitors->mutex);
  visitors->left.wait(lock, [] { return visitors->inside <= 0; });
}

bool VisitsRefused(bool has_gil) noexcept {
  if (!visitors->refused) return false;
  if (visitors->last == std::this_thread::get_id()) return true;
  if (has_gil) PyEval_SaveThread();
  visitors->Leave(my_visits);
  for (;;) pause();
}

void ForgetVisits() noexcept {
  visitors = new (visitors_storage) Visitors;  // the old one's lock may have been held
  visitors->inside = my_visits;
}

Allocator& CopyAllocator() noexcept { return NeverDestroyed<BlockAllocator>(); }
Parallel& CopyParallel() noexcept { return NeverDestroyed<CopyPool>(); }

}  // namespace raggrad::python
