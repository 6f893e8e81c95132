// Runs a test under every setting whose results must agree: 1, 2 and 7 threads, every instruction set of the machine.
#pragma once

#include <span>

#include "raggrad/core/context.h"
#include "raggrad/core/executor.h"
#include "raggrad/core/function_ref.h"
#include "raggrad/core/isa.h"

namespace raggrad::testing {

// An executor of that many workers that all tests share and that lives as long as the process.
Executor& SharedExecutor(int workers);

// Under sanitizers a setting takes up to 10 times as long. ThreadSanitizer looks for races: it needs several threads
// but only one instruction set, since all of them cut the work in the same way. The others look at memory and
// arithmetic, for which 2 threads show nothing that 7 do not, and each instruction set is run with one of the numbers.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kEveryPair = true;
inline constexpr int kWorkers[] = {2, 7};
inline std::span<const Isa> IsasToTest() { return AvailableIsas().last(1); }
#elif defined(RAGGRAD_SANITIZED)
inline constexpr bool kEveryPair = false;
inline constexpr int kWorkers[] = {1, 7};
inline std::span<const Isa> IsasToTest() { return AvailableIsas(); }
#else
inline constexpr bool kEveryPair = true;
inline constexpr int kWorkers[] = {1, 2, 7};
inline std::span<const Isa> IsasToTest() { return AvailableIsas(); }
#endif

// Calls f for each setting. The context's allocator is the default one.
void ForEachSetting(FunctionRef<void(const Context&)> f);

// The context with order-free sums.
inline Context Reproducible(Context ctx = {}) {
  ctx.accumulation = Accumulation::kReproducible;
  return ctx;
}

}  // namespace raggrad::testing
