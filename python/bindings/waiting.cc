#include "waiting.h"

#include <time.h>

#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "runtime.h"

namespace raggrad::python {
namespace {

// Guarded by the GIL; never destroyed.
std::vector<const InterruptibleSleeper*>& Sleepers() {
  static auto* const sleepers = new std::vector<const InterruptibleSleeper*>;
  return *sleepers;
}

}  // namespace

LinkedCancellation::LinkedCancellation(const LinkedCancellation* parent) {
  if (parent == nullptr) return;
  parent_ = parent->token();
  link_ = parent_->Notify([token = token_] { token.Cancel(); });
  if (link_ == 0) token_.Cancel();
}

LinkedCancellation::~LinkedCancellation() {
  if (link_ != 0) parent_->Forget(link_);
}

InterruptibleSleeper::InterruptibleSleeper(const Cancellation& token) : token_(token), lock_(PyThread_allocate_lock()) {
  if (lock_ == nullptr) throw std::bad_alloc();
  PyThread_acquire_lock(lock_, NOWAIT_LOCK);
}

InterruptibleSleeper::~InterruptibleSleeper() {
  PyThread_release_lock(lock_);
  PyThread_free_lock(lock_);
}

void InterruptibleSleeper::Sleep() noexcept {
  if (CallsRefused(/*has_gil=*/true)) token_.Cancel();
  Sleepers().push_back(this);
  const auto acquire = [this] {
    const WithoutGil released;
    return PyThread_acquire_lock_timed(lock_, -1, /*intr_flag=*/interrupt_ == nullptr);
  };
  while (acquire() != PY_LOCK_ACQUIRED) {
    if (PyErr_CheckSignals() == 0) continue;
    interrupt_ = std::make_exception_ptr(nb::python_error());
    token_.Cancel();
  }
  std::erase(Sleepers(), this);
}

void LetOthersRun() noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr auto kOftenEnough = std::chrono::microseconds(200);
  constexpr auto kRecently = std::chrono::milliseconds(10);
  static unsigned long last_caller = 0;     // this and the next: guarded by the GIL
  static Clock::time_point others_until{};  // until then several threads count as calling
  thread_local Clock::time_point last_time{};
  const Clock::time_point now = Clock::now();
  if (std::exchange(last_caller, PyThread_get_thread_ident()) != last_caller) others_until = now + kRecently;
  if (Sleepers().empty() && (now >= others_until || now - last_time < kOftenEnough)) return;
  {
    const WithoutGil released;
    const timespec moment{0, 1};  // some 50 us in practice: a thread that waits for the GIL gets it
    nanosleep(&moment, nullptr);
  }
  last_time = Clock::now();
}

void RepeatInBackground(nb::object look) {
  const auto look_again = [](nb::handle function) {
    const GilGuard guard;
    if (!guard.ok()) return false;  // the function stays until the end of the process
    try {
      if (nb::cast<bool>(function())) return true;
    } catch (nb::python_error& error) {
      error.discard_as_unraisable(function);
    }
    function.dec_ref();
    return false;
  };
  std::thread([look_again, function = look.release()] {
    while (look_again(function)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }).detach();
}

std::vector<unsigned long> SleepingThreads() {
  std::vector<unsigned long> threads;
  for (const InterruptibleSleeper* sleeper : Sleepers()) {
    if (!sleeper->woken()) threads.push_back(sleeper->thread());
  }
  return threads;
}

void PendingCall::Tell(nb::handle value, nb::handle error) const noexcept {
  try {
    done_(value, error);
  } catch (nb::python_error& failure) {
    failure.discard_as_unraisable(done_);
  }
}

nb::object ExceptionOf(const Status& status) try { Raise(status); } catch (nb::python_error& error) {
  return nb::borrow(error.value());
}

}  // namespace raggrad::python
