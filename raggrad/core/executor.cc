#include "raggrad/core/executor.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <vector>

#include "raggrad/core/first_use.h"
#include "raggrad/core/fork.h"
#include "raggrad/core/limits.h"

namespace raggrad {
namespace {

class Serial final : public Executor {
 public:
  int num_workers() const noexcept override { return 1; }
  void Run(int64_t tasks, TaskRef body) noexcept override {
    for (int64_t task = 0; task < tasks; ++task) body(task);
  }
};

void Pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Calls done() until it is true, for about 200 us at most; returns whether it became true. Waking a sleeping thread
// takes 5 us, in a virtual machine 40 us: as long as many calls take, and calls often follow each other closely.
template <class F>
bool Spin(const F& done) noexcept {
  constexpr auto kLongest = std::chrono::microseconds(200);
  constexpr int kLooks = 32;  // calls of done() between two looks at the clock
  const auto end = std::chrono::steady_clock::now() + kLongest;
  do {
    for (int look = 0; look < kLooks; ++look) {
      if (done()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// One word, state_, holds the number of the job, whether it is open to workers, and how many workers are inside. A
// worker adds itself to the count, and is inside if the job was open at that moment. Only workers that are inside touch
// the job.
class ThreadPool final : public Executor {
 public:
  explicit ThreadPool(int workers) noexcept : generation_(ForkGeneration()), processors_(UsableProcessors()) {
    const int wanted = std::clamp(workers, 1, kMostWorkers) - 1;
    try {
      threads_.reserve(static_cast<size_t>(wanted));
    } catch (const std::bad_alloc&) {
      return;
    }
    const auto work = [](void* pool) -> void* {
      static_cast<ThreadPool*>(pool)->Work();
      return nullptr;
    };
    for (pthread_t thread; static_cast<int>(threads_.size()) < wanted; threads_.push_back(thread)) {
      if (pthread_create(&thread, nullptr, work, this) != 0) return;  // use those that have started
    }
  }

  ~ThreadPool() override {
    if (Forked()) return;
    stopping_.store(true, std::memory_order_relaxed);
    calls_.fetch_add(1, std::memory_order_release);
    calls_.notify_all();
    for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
  }

  int num_workers() const noexcept override { return Forked() ? 1 : static_cast<int>(threads_.size()) + 1; }

  void Run(int64_t tasks, TaskRef body) noexcept override {
    // The pool has one job at a time. A second caller runs its own tasks instead of waiting, so nested calls are safe.
    if (tasks <= 1 || threads_.empty() || Forked() || busy_.test_and_set(std::memory_order_acquire)) {
      SerialExecutor().Run(tasks, body);
      return;
    }
    body_ = body;
    tasks_ = tasks;
    next_.store(0, std::memory_order_relaxed);
    state_.fetch_add(kNextJob | kOpen, std::memory_order_release);
    Call(tasks - 1);
    TakeTasks(body, tasks);
    state_.fetch_and(~kOpen, std::memory_order_relaxed);
    AwaitWorkers();
    busy_.clear(std::memory_order_release);
  }

 private:
  static constexpr int kMostWorkers = 4096;  // the count of workers inside stays below kOpen
  static constexpr uint64_t kOneInside = 1, kOpen = 1 << 16, kNextJob = kOpen << 1;
  static uint64_t Inside(uint64_t state) noexcept { return state % kOpen; }
  static bool IsOpen(uint64_t state) noexcept { return (state & kOpen) != 0; }
  static uint64_t Job(uint64_t state) noexcept { return state / kNextJob; }

  bool Forked() const noexcept { return generation_ != ForkGeneration(); }

  // Wakes one thread per task, less those that are looking for work already. A thread that stops looking at this moment
  // sees that calls_ has changed and does not sleep.
  void Call(int64_t helpers) noexcept {
    calls_.fetch_add(1);
    helpers -= looking_.load();
    if (helpers >= static_cast<int64_t>(threads_.size())) return calls_.notify_all();
    for (int64_t i = 0; i < helpers; ++i) calls_.notify_one();
  }

  // Runs tasks until none is left. Returns whether there were any.
  bool TakeTasks(TaskRef body, int64_t tasks) noexcept {
    bool any = false;
    for (int64_t task = next_.fetch_add(1, std::memory_order_relaxed); task < tasks;
         task = next_.fetch_add(1, std::memory_order_relaxed)) {
      body(task);
      any = true;
    }
    return any;
  }

  void AwaitWorkers() noexcept {
    uint64_t state = 0;
    const auto all_left = [&] { return Inside(state = state_.load(std::memory_order_acquire)) == 0; };
    if (processors_ > 1 && Spin(all_left)) return;
    while (!all_left()) state_.wait(state, std::memory_order_relaxed);
  }

  // Spins until done() is true, unless spinning threads and the caller already occupy half of the processors. Returns
  // whether done() became true.
  template <class F>
  bool Look(const F& done) noexcept {
    const bool may_look = looking_.fetch_add(1) < processors_ / 2 - 1;
    const bool found = may_look && Spin(done);
    looking_.fetch_sub(1);
    return found;
  }

  void Work() noexcept {
    uint64_t done = 0;    // the last job that this thread was in
    bool worked = false;  // it had a task there, so looking for the next job is worthwhile
    while (true) {
      const uint32_t calls = calls_.load();
      const auto called = [&] {
        const uint64_t state = state_.load(std::memory_order_relaxed);
        return (IsOpen(state) && Job(state) != done) || stopping_.load(std::memory_order_relaxed);
      };
      if (!called() && !(worked && Look(called))) {
        calls_.wait(calls);
        worked = false;
        if (!called()) continue;
      }
      if (stopping_.load(std::memory_order_relaxed)) return;
      const uint64_t state = state_.fetch_add(kOneInside, std::memory_order_acquire);
      if (IsOpen(state)) {
        done = Job(state);
        worked = TakeTasks(*body_, tasks_);
      }
      const uint64_t left = state_.fetch_sub(kOneInside, std::memory_order_release) - kOneInside;
      if (!IsOpen(left) && Inside(left) == 0) state_.notify_one();
    }
  }

  const int generation_;
  const int processors_;  // that the threads may use: they inherit the affinity of the one that starts them
  // Plain ids: a child of fork() just forgets them, where std::thread would have to be joined or detached.
  std::vector<pthread_t> threads_;
  std::atomic_flag busy_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> state_{0};
  std::atomic<uint32_t> calls_{0};  // sleepers wait for it to change
  std::atomic<int> looking_{0};     // threads that look for a job before they sleep

  // The job: written before it is open, read by workers that are inside.
  std::optional<TaskRef> body_;
  int64_t tasks_ = 0;
  std::atomic<int64_t> next_{0};
};

int DefaultWorkers() noexcept {
  const char* text = std::getenv("RAGGRAD_NUM_THREADS");
  if (text == nullptr) return UsableProcessors();
  int workers = 0;
  const char* end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, workers);
  return error == std::errc{} && rest == end && workers >= 1 ? workers : UsableProcessors();
}

}  // namespace

Executor& SerialExecutor() noexcept {
  static constinit FirstUse<Serial> serial;
  return serial.Get([] { return Serial(); });
}

std::unique_ptr<Executor> MakeThreadPool(int workers) noexcept {
  return std::unique_ptr<Executor>(new (std::nothrow) ThreadPool(workers));
}

Executor& DefaultExecutor() noexcept {
  static constinit FirstUse<std::unique_ptr<Executor>> pool;
  const std::unique_ptr<Executor>& made = pool.Get([] { return MakeThreadPool(DefaultWorkers()); });
  return made ? *made : SerialExecutor();
}

}  // namespace raggrad
