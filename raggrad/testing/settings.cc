#include "raggrad/testing/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace raggrad::testing {

Executor& SharedExecutor(int workers) {
  static std::mutex mutex;
  static auto& executors = *new std::map<int, std::unique_ptr<Executor>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Executor>& executor = executors[workers];
  if (!executor) executor = MakeThreadPool(workers);
  return *executor;
}

void ForEachSetting(FunctionRef<void(const Context&)> f) {
  const std::span<const Isa> isas = IsasToTest();
  constexpr size_t kCounts = std::size(kWorkers);
  const size_t settings = kEveryPair ? isas.size() * kCounts : std::max(isas.size(), kCounts);
  for (size_t i = 0; i < settings; ++i) {
    const Isa isa = isas[i % isas.size()];
    const int workers = kWorkers[kEveryPair ? i / isas.size() : i % kCounts];
    SCOPED_TRACE(std::to_string(workers) + " threads, " + std::string(IsaName(isa)));
    Context ctx;
    ctx.executor = &SharedExecutor(workers);
    ctx.isa = isa;
    f(ctx);
  }
}

}  // namespace raggrad::testing
