// Shared by the benchmark programs. A benchmark with the name of a workload of `python -m raggrad bench` has its sizes
// (python/raggrad/bench/workloads/), and `make bench` times it beside the other frameworks. The rest is for work on
// kernels.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "raggrad/core/context.h"
#include "raggrad/core/pool_allocator.h"
#include "raggrad/core/result.h"
#include "raggrad/testing/bench_data.h"

namespace raggrad::bench {

// Source of outputs and scratch: fresh memory in every call, or the memory that the call before gave back. Sweeps keep
// memory: the cost of fresh pages depends on the system and the host of a virtual machine, and would hide how the
// operator's own cost grows.
enum class Memory { kFresh, kKept };

class MemoryContext {
 public:
  explicit MemoryContext(Memory memory) {
    if (memory == Memory::kKept) ctx_.allocator = &pool_;
  }
  const Context& operator*() const { return ctx_; }

 private:
  PoolAllocator pool_{std::numeric_limits<size_t>::max()};
  Context ctx_;
};

// Calls once to warm up, and then until the benchmark has seen enough. The time includes allocating outputs. It leaves
// out giving them back for long calls, where stopping the clock costs little.
template <class F>
void Repeat(benchmark::State& state, bool long_call, const F& call) {
  benchmark::DoNotOptimize(call());
  for (auto _ : state) {
    auto result = call();
    if (!result.ok()) {
      state.SkipWithError(std::string(result.status().message()).c_str());
      return;
    }
    benchmark::DoNotOptimize(result);
    if (long_call) {
      state.PauseTiming();
      { [[maybe_unused]] const auto dropped = std::move(result); }
      state.ResumeTiming();
    }
  }
}

// Counts the bytes that a call cannot avoid: each input read once, each output written once.
inline void CountTraffic(benchmark::State& state, int64_t bytes) {
  state.SetBytesProcessed(state.iterations() * bytes);
}

// Registers a benchmark that is measured in wall-clock time, because calls use several threads.
template <class F>
benchmark::internal::Benchmark* Register(const std::string& name, F body) {
  return benchmark::RegisterBenchmark(name.c_str(), std::move(body))->UseRealTime();
}

inline int RunAll(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace raggrad::bench
