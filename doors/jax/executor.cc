#include "executor.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>

namespace raggrad::jax_door {
namespace {

// Tasks that several threads take one by one. A thread that comes when all are taken does not touch the body, which is
// gone by then.
class Work {
 public:
  Work(int64_t tasks, TaskRef body) noexcept : tasks_(tasks), body_(body) {}

  void TakeTasks() noexcept {
    for (int64_t task = next_.fetch_add(1); task < tasks_; task = next_.fetch_add(1)) {
      body_(task);
      if (done_.fetch_add(1) + 1 == tasks_) done_.notify_all();
    }
  }
  void Wait() const noexcept {
    for (int64_t done = done_.load(); done < tasks_; done = done_.load()) done_.wait(done);
  }

 private:
  const int64_t tasks_;
  const TaskRef body_;
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> done_{0};
};

}  // namespace

XlaExecutor::XlaExecutor(ffi::ThreadPool* threads) noexcept
    : threads_(threads), num_workers_(threads == nullptr ? 1 : std::max(static_cast<int>(threads->num_threads()), 1)) {}

void XlaExecutor::Run(int64_t tasks, TaskRef body) noexcept {
  std::shared_ptr<Work> work;
  if (num_workers_ > 1 && tasks > 1) work.reset(new (std::nothrow) Work(tasks, body));
  if (work == nullptr) {
    for (int64_t task = 0; task < tasks; ++task) body(task);
    return;
  }
  const int64_t helpers = std::min<int64_t>(num_workers_, tasks) - 1;
  try {
    for (int64_t i = 0; i < helpers; ++i) {
      threads_->Schedule([work] { work->TakeTasks(); });
    }
  } catch (const std::bad_alloc&) {  // fewer threads help
  }
  work->TakeTasks();
  work->Wait();
}

}  // namespace raggrad::jax_door
