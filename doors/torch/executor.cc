#include "executor.h"

#include <pthread.h>
#include <torch/csrc/stable/c/shim.h>

#include <algorithm>
#include <atomic>

#include "raggrad/core/first_use.h"

namespace raggrad::torch_door {
namespace {

std::atomic<bool> in_child{false};

class Threads final : public Executor {
 public:
  Threads() noexcept {
    pthread_atfork(nullptr, nullptr, [] { in_child.store(true, std::memory_order_relaxed); });
  }

  int num_workers() const noexcept override {
    uint32_t threads = 1;
    if (in_child.load(std::memory_order_relaxed) || torch_get_num_threads(&threads) != AOTI_TORCH_SUCCESS) return 1;
    return static_cast<int>(std::max<uint32_t>(threads, 1));
  }

  // Workers take one task after the other: torch would cut [0, tasks) into equal ranges, which differ in cost.
  void Run(int64_t tasks, TaskRef body) noexcept override {
    struct Shared {
      std::atomic<int64_t> next{0};
      int64_t tasks;
      TaskRef body;

      void Work() {
        for (int64_t task = next.fetch_add(1); task < tasks; task = next.fetch_add(1)) body(task);
      }
    } shared{.tasks = tasks, .body = body};
    const int64_t workers = std::min<int64_t>(tasks, num_workers());
    if (workers > 1) {
      const auto work = [](int64_t, int64_t, void* object) { static_cast<Shared*>(object)->Work(); };
      [[maybe_unused]] const AOTITorchError error = torch_parallel_for(0, workers, 1, work, &shared);
    }
    shared.Work();  // whatever is left: everything if torch has only this thread
  }
};

}  // namespace

Executor& TorchExecutor() noexcept {
  static constinit FirstUse<Threads> threads;
  return threads.Get([] { return Threads(); });
}

}  // namespace raggrad::torch_door
