#include "raggrad/testing/settings.h"

#include <map>
#include <mutex>

namespace raggrad::testing {

Executor& SharedExecutor(int workers) {
  static std::mutex mutex;
  static auto& executors = *new std::map<int, std::unique_ptr<Executor>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Executor>& executor = executors[workers];
  if (!executor) executor = MakeThreadPool(workers);
  return *executor;
}

}  // namespace raggrad::testing
