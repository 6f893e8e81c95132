// Runs a call under every setting, compares it with the expected result, and traps on a difference.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "raggrad/core/context.h"
#include "raggrad/cpu/float_environment.h"
#include "raggrad/testing/fuzz_input.h"
#include "raggrad/testing/owned.h"

namespace raggrad::fuzz {

using Outputs = std::vector<Tensor>;

struct Expected {
  Code code = Code::kInvalidArgument;
  Outputs outputs;           // if the code is OK
  bool may_exhaust = false;  // RESOURCE_EXHAUSTED is fine too: the call may need more memory than there is
  Accumulation other = Accumulation::kFast;  // a second mode to run
  Outputs other_outputs = {};                // of that mode, if they are known
};

[[noreturn]] inline void Trap(std::string_view setting, std::string_view what) {
  std::fprintf(stderr, "DIFFERENCE (%.*s): %.*s\n", static_cast<int>(setting.size()), setting.data(),
               static_cast<int>(what.size()), what.data());
  std::abort();
}

inline void ExpectOutputs(const std::string& setting, const Outputs& got, const Outputs& want) {
  if (got.size() != want.size()) Trap(setting, "number of outputs");
  for (size_t i = 0; i < want.size(); ++i) {
    const std::string difference = testing::Difference(got[i].view(), want[i].view());
    if (!difference.empty()) Trap(setting, "output " + std::to_string(i) + ": " + difference);
  }
}

// Runs call(const Context&) -> Result<Outputs> with 1 and 3 threads and every instruction set, and traps unless the
// result is exactly the expected one. The outputs of the second mode may be unknown, but they must be the same under
// every setting. One more run has an allocator that may fail.
template <class Call>
void Check(const Expected& expected, FuzzInput& in, const Call& call) {
  constexpr size_t kMemory = size_t{64} << 20;
  static Executor& three_threads = *MakeThreadPool(3).release();
  testing::ExactAllocator memory(kMemory);

  const auto run = [&](const std::string& setting, const Context& ctx) {
    const cpu::FloatState found = cpu::FloatState::Read();
    Result<Outputs> result = call(ctx);
    if (!(cpu::FloatState::Read() == found)) Trap(setting, "the floating-point environment was not restored");
    const Code code = result.status().code();
    if (code != expected.code && !(expected.may_exhaust && code == Code::kResourceExhausted)) {
      Trap(setting, "expected " + std::string(CodeName(expected.code)) + ", got " + std::string(CodeName(code)) + " " +
                        std::string(result.status().message()));
    }
    return result;
  };

  Outputs other;
  for (Executor* const executor : {&SerialExecutor(), &three_threads}) {
    for (const Isa isa : AvailableIsas()) {
      const std::string setting = std::to_string(executor->num_workers()) + " threads, " + std::string(IsaName(isa));
      Context ctx;
      ctx.allocator = &memory;
      ctx.executor = executor;
      ctx.isa = isa;
      const Result<Outputs> exact = run(setting, ctx);
      if (exact.ok()) ExpectOutputs(setting, *exact, expected.outputs);
      ctx.accumulation = expected.other;
      Result<Outputs> result = run(setting + ", second mode", ctx);
      if (!result.ok()) continue;
      if (!expected.other_outputs.empty()) ExpectOutputs(setting + ", second mode", *result, expected.other_outputs);
      if (other.empty())
        other = *std::move(result);
      else
        ExpectOutputs(setting + ", second mode", *result, other);
    }
  }

  other.clear();
  if (memory.live() != 0) Trap("all settings", "memory was not given back");

  testing::ExactAllocator failing(kMemory, in.Below(16));
  Context ctx;
  ctx.allocator = &failing;
  ctx.executor = &three_threads;
  if (const Result<Outputs> result = call(ctx); result.ok()) {
    if (expected.code != Code::kOk) Trap("failing allocator", "success although an error was expected");
    ExpectOutputs("failing allocator", *result, expected.outputs);
  } else if (result.status().code() != expected.code && result.status().code() != Code::kResourceExhausted) {
    Trap("failing allocator", std::string(CodeName(result.status().code())) + " instead of RESOURCE_EXHAUSTED");
  }
  if (failing.live() != 0) Trap("failing allocator", "memory was not given back");
}

}  // namespace raggrad::fuzz
