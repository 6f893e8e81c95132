#include "raggrad/core/parallel.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "raggrad/core/fork.h"

namespace raggrad {
namespace {

class Serial final : public Parallel {
 public:
  int num_workers() const noexcept override { return 1; }
  void Run(int64_t tasks, TaskRef body) noexcept override {
    for (int64_t task = 0; task < tasks; ++task) body(task);
  }
};

class ThreadPool final : public Parallel {
 public:
  explicit ThreadPool(int workers) noexcept : generation_(ForkGeneration()) {
    try {
      threads_.reserve(static_cast<size_t>(std::max(workers - 1, 0)));
      for (int i = 1; i < workers; ++i) threads_.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {  // the system has no more threads to give: do with those that started
    } catch (const std::bad_alloc&) {
    }
  }

  ~ThreadPool() override {
    if (Forked()) {
      for (std::thread& thread : threads_) thread.detach();
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  int num_workers() const noexcept override { return Forked() ? 1 : static_cast<int>(threads_.size()) + 1; }

  void Run(int64_t tasks, TaskRef body) noexcept override {
    // One job at a time. A second caller does its own work rather than wait; that also makes nested calls safe.
    if (tasks <= 1 || threads_.empty() || Forked() || busy_.test_and_set(std::memory_order_acquire)) {
      SerialParallel().Run(tasks, body);
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      body_ = body;
      tasks_ = tasks;
      next_.store(0, std::memory_order_relaxed);
      ++job_;
    }
    Wake(tasks - 1);
    TakeTasks(body, tasks);
    {
      // Workers that are in the job still run its last tasks; those that have not joined it no longer can.
      std::unique_lock lock(mutex_);
      body_.reset();
      done_.wait(lock, [this] { return active_ == 0; });
    }
    busy_.clear(std::memory_order_release);
  }

 private:
  // To wake a thread takes a microsecond or more: no more than have something to do.
  void Wake(int64_t helpers) noexcept {
    if (helpers >= static_cast<int64_t>(threads_.size())) return wake_.notify_all();
    for (int64_t i = 0; i < helpers; ++i) wake_.notify_one();
  }

  bool Forked() const noexcept { return generation_ != ForkGeneration(); }

  void TakeTasks(TaskRef body, int64_t tasks) noexcept {
    for (int64_t task = next_.fetch_add(1, std::memory_order_relaxed); task < tasks;
         task = next_.fetch_add(1, std::memory_order_relaxed)) {
      body(task);
    }
  }

  void Work() noexcept {
    int64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return stopping_ || (body_ && job_ != seen); });
      if (stopping_) return;
      seen = job_;
      const TaskRef body = *body_;
      const int64_t tasks = tasks_;
      ++active_;
      lock.unlock();
      TakeTasks(body, tasks);
      lock.lock();
      if (--active_ == 0) done_.notify_one();
    }
  }

  const int generation_;
  std::vector<std::thread> threads_;
  std::atomic_flag busy_;
  std::atomic<int64_t> next_{0};

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::optional<TaskRef> body_;  // the job in progress
  int64_t tasks_ = 0;
  int64_t job_ = 0;
  int active_ = 0;  // workers inside the job
  bool stopping_ = false;
};

int DefaultWorkers() noexcept {
  const int hardware = static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
  const char* text = std::getenv("RAGGRAD_NUM_THREADS");
  if (text == nullptr) return hardware;
  int workers = 0;
  const char* end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, workers);
  return error == std::errc{} && rest == end && workers >= 1 ? workers : hardware;
}

}  // namespace

Parallel& SerialParallel() noexcept {
  static Serial serial;
  return serial;
}

std::unique_ptr<Parallel> MakeThreadPool(int workers) noexcept {
  return std::unique_ptr<Parallel>(new (std::nothrow) ThreadPool(workers));
}

Parallel& DefaultParallel() noexcept {
  // Never destroyed: other static objects may still compute while the process ends.
  static Parallel* const pool = MakeThreadPool(DefaultWorkers()).release();
  return pool ? *pool : SerialParallel();
}

}  // namespace raggrad
