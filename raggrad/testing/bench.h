// What the benchmark programs share. A benchmark with the name of a workload of `python -m raggrad bench` has its
// sizes (python/raggrad/bench/workloads.py), and `make bench` times it beside the others; the rest is for whoever works
// on a kernel.
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

// Where outputs and scratch come from: fresh memory in every call, or what the call before gave back. Sweeps keep it:
// fresh pages cost what the system, and in a virtual machine its host, make of them, and would hide how the cost of the
// operator itself grows.
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

// Calls once to warm up, and then until the benchmark has seen enough. Outputs are allocated inside the time, and given
// back outside of it if a call is so long that stopping the clock does not matter.
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

// Bytes that a call cannot avoid: each input read once, each output written once.
inline void CountTraffic(benchmark::State& state, int64_t bytes) {
  state.SetBytesProcessed(state.iterations() * bytes);
}

// What registers a benchmark of a call that uses several threads, so that the clock on the wall counts.
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
