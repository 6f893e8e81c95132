#include "raggrad/testing/settings.h"

#include <map>
#include <mutex>

namespace raggrad::testing {

Executor& Pool(int workers) {
  static std::mutex mutex;
  static auto& pools = *new std::map<int, std::unique_ptr<Executor>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Executor>& pool = pools[workers];
  if (!pool) pool = MakeThreadPool(workers);
  return *pool;
}

}  // namespace raggrad::testing
