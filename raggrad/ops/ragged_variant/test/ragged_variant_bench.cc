// Workloads ragged-*, tiny calls, and other sizes.
#include <algorithm>
#include <numeric>
#include <optional>
#include <random>

#include "raggrad/ops/ragged_variant/ragged_variant.h"
#include "raggrad/testing/bench.h"

namespace raggrad::bench {
namespace {

struct Pieces {
  int64_t count;
  int64_t rows;          // of each; 0: 0 to 39
  int64_t missing = 0;   // one of so many; 0: none
  int64_t columns = 64;  // of float
  Memory memory = Memory::kFresh;
  bool scattered = false;  // in memory; otherwise one lies behind the other
};

void Gradient(benchmark::State& state, const Pieces& pieces) {
  Generator random(1);
  std::vector<int64_t> splits{0};
  for (int64_t i = 0; i < pieces.count; ++i) {
    splits.push_back(splits.back() + (pieces.rows > 0 ? pieces.rows : random.Below(40)));
  }
  const std::vector<float> values = random.Values<float>(splits.back() * pieces.columns);
  std::vector<int64_t> order(static_cast<size_t>(pieces.count));  // of the pieces in memory
  std::iota(order.begin(), order.end(), 0);
  if (pieces.scattered) std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  std::vector<int64_t> places(order.size());  // of their first rows
  int64_t next = 0;
  for (const int64_t i : order) {
    places[static_cast<size_t>(i)] = next;
    next += splits[static_cast<size_t>(i) + 1] - splits[static_cast<size_t>(i)];
  }
  std::vector<std::optional<RaggedView>> elements;
  int64_t rows_there = 0;
  for (int64_t i = 0; i < pieces.count; ++i) {
    const int64_t begin = places[static_cast<size_t>(i)];
    const int64_t rows = splits[static_cast<size_t>(i) + 1] - splits[static_cast<size_t>(i)];
    if (pieces.missing > 0 && random.Below(pieces.missing) == 0) {
      elements.emplace_back();
      continue;
    }
    rows_there += rows;
    elements.emplace_back(
        RaggedView{{}, TensorView::Of(values.data() + begin * pieces.columns, Shape{rows, pieces.columns})});
  }
  const std::vector<int32_t> shape{static_cast<int32_t>(splits.back()), static_cast<int32_t>(pieces.columns)};
  const MemoryContext ctx(pieces.memory);
  Repeat(state, splits.back() > 1000, [&] {
    return RaggedTensorToVariantGradient({Shape{pieces.count}, elements}, VectorView(splits), VectorView(shape),
                                         DType::kFloat32, *ctx);
  });
  CountTraffic(state, (rows_there + splits.back()) * pieces.columns * 4);
}

}  // namespace
}  // namespace raggrad::bench

int main(int argc, char** argv) {
  using namespace raggrad::bench;
  const auto add = [](const std::string& name, const Pieces& pieces) {
    Register(name, [=](benchmark::State& state) { Gradient(state, pieces); });
  };
  add("tiny-RaggedTensorToVariantGradient", {.count = 3, .rows = 1, .columns = 4});
  add("ragged-A", {.count = 16'384, .rows = 0});
  add("ragged-B", {.count = 100, .rows = 4096});
  add("ragged-C", {.count = 16'384, .rows = 0, .missing = 10});
  add("ragged-A-scattered", {.count = 16'384, .rows = 0, .memory = Memory::kKept, .scattered = true});
  for (int64_t count = 10; count <= 1'000'000; count *= 10) {
    add("sweep/pieces:" + std::to_string(count), {.count = count, .rows = 0, .columns = 4, .memory = Memory::kKept});
  }
  return RunAll(argc, argv);
}
