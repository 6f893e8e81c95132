// Workloads unbatch-*: batches whose pieces several threads bring, tiny calls, and a tiny call beside a large batch.
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <thread>

#include "raggrad/core/pool_allocator.h"
#include "raggrad/ops/batching/batching.h"
#include "raggrad/testing/bench.h"

namespace raggrad::bench {
namespace {

using Seconds = std::chrono::duration<double>;
using WallClock = std::chrono::steady_clock;

// Pieces of batches. All share the same memory, so the meeting of calls and the writing of results are measured.
class Batches {
 public:
  Batches(int64_t pieces, int64_t bytes)
      : pieces_(pieces),
        grad_(std::make_shared<const std::vector<float>>(static_cast<size_t>(bytes / 4), 1.0f)),
        view_(TensorView::Of(grad_->data(), Shape{bytes / 4})) {}

  // Piece `number`, counted over all batches from `first_key` on. The last of a batch owns it.
  Result<Tensor> Bring(BatchingRuntime& runtime, int64_t number, int64_t first_key = 0) const {
    const int64_t key = first_key + number;
    const bool owns = number % pieces_ == pieces_ - 1;
    std::vector<int64_t> index;
    for (int64_t i = owns ? 0 : pieces_; i < pieces_; ++i) {
      index.insert(index.end(), {key - pieces_ + 1 + i, i * view_.dim(0), (i + 1) * view_.dim(0)});
    }
    return runtime.UnbatchGrad({.resource = {"", "bench"},
                                .original_input = owns ? view_ : TensorView::Of(grad_->data(), Shape{0}),
                                .batch_index = TensorView::Of(index.data(), Shape{owns ? pieces_ : 0, 3}),
                                .grad = {view_, grad_},
                                .id = TensorView::Scalar(key)});
  }

  int64_t pieces() const { return pieces_; }
  int64_t bytes() const { return pieces_ * view_.dim(0) * 4; }  // of a batch

 private:
  int64_t pieces_;
  std::shared_ptr<const std::vector<float>> grad_;
  TensorView view_;
};

void ReportPercentiles(benchmark::State& state, std::vector<double>& latencies) {
  std::ranges::sort(latencies);
  state.counters["p50"] = latencies[latencies.size() / 2];
  state.counters["p99"] = latencies[latencies.size() * 99 / 100];
  state.counters["max"] = latencies.back();
}

// One iteration is `count` batches. A thread that is free takes the next piece, in order. The latency of a batch is the
// time from its first piece to its owner's return.
void Together(benchmark::State& state, const Batches& batches, int64_t count, int threads) {
  PoolAllocator pool;
  Context ctx;
  ctx.allocator = &pool;
  BatchingRuntime runtime(ctx);
  std::atomic<bool> failed = false;
  std::vector<double> latencies;
  for (auto _ : state) {
    std::vector<WallClock::time_point> begun(static_cast<size_t>(count)), ended(static_cast<size_t>(count));
    std::atomic<int64_t> next = 0;
    std::latch ready(threads + 1);
    std::vector<std::jthread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([&] {
        ready.arrive_and_wait();
        for (int64_t number; (number = next++) < count * batches.pieces();) {
          const auto batch = static_cast<size_t>(number / batches.pieces());
          if (number % batches.pieces() == 0) begun[batch] = WallClock::now();
          if (!batches.Bring(runtime, number).ok()) failed = true;
          if (number % batches.pieces() == batches.pieces() - 1) ended[batch] = WallClock::now();
        }
      });
    }
    ready.arrive_and_wait();
    const auto start = WallClock::now();
    workers.clear();  // joins the threads
    state.SetIterationTime(Seconds(WallClock::now() - start).count());
    for (size_t i = 0; i < begun.size(); ++i) latencies.push_back(Seconds(ended[i] - begun[i]).count());
  }
  if (failed) state.SkipWithError("a call failed");
  ReportPercentiles(state, latencies);
  state.counters["batches"] = static_cast<double>(count);
  state.SetItemsProcessed(state.iterations() * count);
  CountTraffic(state, count * 2 * batches.bytes());
}

// A batch of one piece: no call waits.
void Tiny(benchmark::State& state) {
  BatchingRuntime runtime;
  const Batches batches(1, 16);
  Repeat(state, false, [&] { return batches.Bring(runtime, 0); });
}

// How long a batch of 16 bytes takes while another thread joins batches of 64 MB on the same resource.
void TinyBesideLarge(benchmark::State& state) {
  BatchingRuntime runtime;
  const Batches large(4, 16 << 20), tiny(1, 16);
  std::atomic<bool> failed = false;
  std::jthread other([&](const std::stop_token& stop) {
    for (int64_t number = 0; !stop.stop_requested() || number % large.pieces() != 0; ++number) {
      if (!large.Bring(runtime, number % large.pieces(), 1000).ok()) failed = true;
    }
  });
  std::vector<double> latencies;
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto start = WallClock::now();
    if (!tiny.Bring(runtime, 0).ok()) failed = true;
    latencies.push_back(Seconds(WallClock::now() - start).count());
    state.SetIterationTime(latencies.back());
  }
  other.request_stop();
  other.join();
  if (failed) state.SkipWithError("a call failed");
  ReportPercentiles(state, latencies);
}

}  // namespace
}  // namespace raggrad::bench

int main(int argc, char** argv) {
  using namespace raggrad::bench;
  const struct {
    const char* name;
    int64_t pieces, bytes, batches;
  } workloads[] = {{"unbatch-A", 16, 1 << 10, 4096}, {"unbatch-B", 16, 64 << 10, 512}, {"unbatch-C", 4, 1 << 20, 128}};
  for (const auto& [name, pieces, bytes, batches] : workloads) {
    for (const int threads : {2, 8, 32}) {
      const std::string full_name = std::string(name) + "-" + std::to_string(threads) + "-threads";
      benchmark::RegisterBenchmark(full_name.c_str(), [batches = Batches(pieces, bytes), count = batches,
                                                       threads](benchmark::State& state) {
        Together(state, batches, count, threads);
      })->UseManualTime();
    }
  }
  benchmark::RegisterBenchmark("tiny-UnbatchGrad", Tiny);
  benchmark::RegisterBenchmark("unbatch-tiny-beside-64MB", TinyBesideLarge)->UseManualTime()->Iterations(500);
  return RunAll(argc, argv);
}
