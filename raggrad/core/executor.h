// Executor: the one thing the library asks of a thread pool.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#pragma GCC visibility push(default)
namespace raggrad {

// A reference to a callable `void(int64_t)`: two pointers, no allocation. The callable must outlive it.
class TaskRef {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, TaskRef>) TaskRef(const F& f)
  noexcept  // NOLINT: implicit, so that a lambda can be passed
      : object_(&f), call_([](const void* object, int64_t task) { (*static_cast<const F*>(object))(task); }) {}

  void operator()(int64_t task) const { call_(object_, task); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t);
};

class Executor {
 public:
  virtual ~Executor() = default;

  // How many tasks can really run at the same time. Operators cut their work by this; results do not depend on it.
  virtual int num_workers() const noexcept = 0;

  // Calls body(t) once for every t in [0, tasks), in any order, on any threads, and returns when all are done.
  // Tasks never throw and never wait for each other.
  virtual void Run(int64_t tasks, TaskRef body) noexcept = 0;
};

// Runs everything on the calling thread.
Executor& SerialExecutor() noexcept;

// A pool of `workers` threads, the caller of Run counted in, and 4096 at most. If threads cannot be started it has
// fewer. A Run while another one is in progress happens on the calling thread. Threads that had something to do look
// for more for 200 us before they sleep, on half of the processors at most that the process may use.
//
// In a child of fork() a pool of the parent works on the calling thread, and its destructor touches no thread. A pool
// that is made in the child has threads of its own.
std::unique_ptr<Executor> MakeThreadPool(int workers) noexcept;

// The process's pool: made on first use and never destroyed. As wide as RAGGRAD_NUM_THREADS says, or else as many
// processors as the process may use: by its affinity and by the CPU quota of its container, rounded down.
Executor& DefaultExecutor() noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
