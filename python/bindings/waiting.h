// Waiting calls from Python: Ctrl-C interrupts them, tokens cancel them, and callbacks hear when they are over.
#pragma once

#include <nanobind/nanobind.h>
#include <pythread.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gil.h"
#include "raggrad/ops/batching/batching.h"

namespace raggrad::python {

// raggrad.batching.Cancellation: a token that is also cancelled when its parent is.
class LinkedCancellation {
 public:
  explicit LinkedCancellation(const LinkedCancellation* parent = nullptr);
  ~LinkedCancellation();
  LinkedCancellation(const LinkedCancellation&) = delete;
  LinkedCancellation& operator=(const LinkedCancellation&) = delete;

  const Cancellation& token() const noexcept { return token_; }

 private:
  Cancellation token_;
  std::optional<Cancellation> parent_;
  int64_t link_ = 0;
};

// Sleeps as Python's own locks do: without the GIL and without polling, until it is woken or a signal comes. A handler
// that raises, as that of Ctrl-C does, cancels the token; that ends the call and thereby the sleep.
class InterruptibleSleeper final : public Sleeper {
 public:
  explicit InterruptibleSleeper(const Cancellation& token);
  ~InterruptibleSleeper() override;
  InterruptibleSleeper(const InterruptibleSleeper&) = delete;
  InterruptibleSleeper& operator=(const InterruptibleSleeper&) = delete;

  void Sleep() noexcept override;
  void Wake() noexcept override {
    woken_ = true;
    PyThread_release_lock(lock_);
  }

  bool woken() const noexcept { return woken_; }
  unsigned long thread() const noexcept { return thread_; }

  // Raises what the handler raised.
  void RaiseInterrupt() {
    if (interrupt_) std::rethrow_exception(interrupt_);
  }

 private:
  const Cancellation& token_;
  PyThread_type_lock lock_;
  std::exception_ptr interrupt_;
  const unsigned long thread_ = PyThread_get_thread_ident();
  std::atomic<bool> woken_ = false;
};

// Python's idents of the threads that sleep and have not been woken.
std::vector<unsigned long> SleepingThreads();

// Calls `look` every 20 ms from a thread that Python does not know, until it returns false, raises, or the interpreter
// ends. It serves to notice that all threads that are left wait for calls of others. Python does not tell, so this is
// the only thing that polls.
void RepeatInBackground(nb::object look);

// Called at the end of a call that brings something for others and gets nothing itself. Lets another thread have the
// GIL: always if one sleeps, and now and then if several threads call. Otherwise Python takes the GIL from a thread
// after 5 ms, at any point; if the thread is about to bring a piece or to return a batch, that piece or batch then
// waits for its next turn.
void LetOthersRun() noexcept;

// A call under way. `done(value, error)` is called exactly once when it is over, from any thread.
class PendingCall {
 public:
  // The outputs get the kind of `like`. `token` is kept alive until the end.
  PendingCall(nb::object done, nb::object like, nb::object token)
      : done_(std::move(done)), like_(std::move(like)), token_(std::move(token)) {}

  // `convert(value, like)` makes the Python object.
  template <class T, class Convert>
  static Completion<T> Completes(std::unique_ptr<PendingCall> call, const Convert& convert) {
    return [pending = call.release(), convert](Result<T> result) {
      const GilGuard guard;
      if (!guard.ok()) return;
      const std::unique_ptr<PendingCall> owner(pending);
      owner->Finish(result.status(), [&] { return convert(*std::move(result), owner->like_); });
    };
  }

 private:
  template <class F>
  void Finish(const Status& status, const F& value) const noexcept;
  void Tell(nb::handle value, nb::handle error) const noexcept;

  nb::object done_, like_, token_;
};

// The exception of raggrad.errors for a status that is not OK.
nb::object ExceptionOf(const Status& status);

template <class F>
void PendingCall::Finish(const Status& status, const F& value) const noexcept {
  try {
    if (!status.ok()) return Tell(nb::none(), ExceptionOf(status));
    Tell(value(), nb::none());
  } catch (nb::python_error& error) {
    Tell(nb::none(), error.value());
  } catch (const std::bad_alloc&) {
    Tell(nb::none(), nb::handle(PyExc_MemoryError));
  }
}

}  // namespace raggrad::python
