#include "raggrad/testing/settings.h"

#include <map>
#include <mutex>

namespace raggrad::testing {

Parallel& Pool(int workers) {
  static std::mutex mutex;
  static auto& pools = *new std::map<int, std::unique_ptr<Parallel>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Parallel>& pool = pools[workers];
  if (!pool) pool = MakeThreadPool(workers);
  return *pool;
}

}  // namespace raggrad::testing
