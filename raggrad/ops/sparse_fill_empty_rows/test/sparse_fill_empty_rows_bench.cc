// Workloads fill-*, tiny calls, and other sizes.
#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"
#include "raggrad/testing/bench.h"

namespace raggrad::bench {
namespace {

void Grad(benchmark::State& state, int64_t full, bool shuffled, Memory memory) {
  Generator random(1);
  std::vector<int64_t> map = Permutation<int64_t>(random, full);
  map.resize(static_cast<size_t>(full * 4 / 5));
  if (!shuffled) std::ranges::sort(map);
  const std::vector<float> grad = random.Values<float>(full);
  const MemoryContext ctx(memory);
  Repeat(state, full > 1000, [&] { return SparseFillEmptyRowsGrad(VectorView(map), VectorView(grad), *ctx); });
  CountTraffic(state, full * 4 + static_cast<int64_t>(map.size()) * (8 + 4));
}

}  // namespace
}  // namespace raggrad::bench

int main(int argc, char** argv) {
  using namespace raggrad::bench;
  const auto add = [](const std::string& name, int64_t full, bool shuffled, Memory memory = Memory::kFresh) {
    Register(name, [=](benchmark::State& state) { Grad(state, full, shuffled, memory); });
  };
  add("tiny-SparseFillEmptyRowsGrad", 5, false);
  add("fill-A", 10'000'000, false);
  add("fill-B", 10'000'000, true);
  for (int64_t full = 1'000; full <= 100'000'000; full *= 10) {
    add("sweep/sorted/entries:" + std::to_string(full), full, false, Memory::kKept);
    add("sweep/shuffled/entries:" + std::to_string(full), full, true, Memory::kKept);
  }
  return RunAll(argc, argv);
}
