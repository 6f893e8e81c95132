// Workloads slice-*, tiny calls, and other sizes.
#include "raggrad/ops/sparse_slice/sparse_slice.h"
#include "raggrad/testing/bench.h"

namespace raggrad::bench {
namespace {

constexpr int64_t kMeanDistance = 100;  // one place in a hundred has an entry

// Entries at random distances, in lexicographic order or shuffled. The slice has half of the first and last dimension.
void Grad(benchmark::State& state, int64_t entries, size_t rank, bool shuffled, Memory memory) {
  Generator random(1);
  const std::vector<int64_t> shape = rank == 2 ? std::vector<int64_t>{entries * kMeanDistance / 1000 + 1, 1000}
                                               : std::vector<int64_t>{entries * kMeanDistance / 20'000 + 1, 25, 20, 40};
  std::vector<int64_t> places(static_cast<size_t>(entries));
  int64_t last = -1;
  for (int64_t& place : places) place = last += 1 + random.Below(2 * kMeanDistance - 1);
  if (shuffled) Shuffle(random, places);

  std::vector<int64_t> start(rank, 0), indices, kept, index(rank);
  for (const size_t d : {size_t{0}, rank - 1}) start[d] = shape[d] / 4;
  const auto inside_in = [&](size_t d) { return index[d] >= start[d] && index[d] < start[d] + shape[d] / 2; };
  for (int64_t place : places) {
    for (size_t d = rank - 1; d > 0; --d) {
      index[d] = place % shape[d];
      place /= shape[d];
    }
    index[0] = place;
    indices.insert(indices.end(), index.begin(), index.end());
    if (!inside_in(0) || !inside_in(rank - 1)) continue;
    for (size_t d = 0; d < rank; ++d) kept.push_back(index[d] - start[d]);
  }
  const auto columns = static_cast<int64_t>(rank), inside = static_cast<int64_t>(kept.size()) / columns;
  const std::vector<float> grad = random.Values<float>(inside);
  const MemoryContext ctx(memory);
  Repeat(state, entries > 1000, [&] {
    return SparseSliceGrad(VectorView(grad), TensorView::Of(indices.data(), Shape{entries, columns}), VectorView(start),
                           TensorView::Of(kept.data(), Shape{inside, columns}), *ctx);
  });
  CountTraffic(state, (entries + inside) * (columns * 8 + 4));
}

}  // namespace
}  // namespace raggrad::bench

int main(int argc, char** argv) {
  using namespace raggrad::bench;
  const auto add = [](const std::string& name, int64_t entries, size_t rank, bool shuffled,
                      Memory memory = Memory::kFresh) {
    Register(name, [=](benchmark::State& state) { Grad(state, entries, rank, shuffled, memory); });
  };
  add("tiny-SparseSliceGrad", 4, 2, false);
  add("slice-A", 4'000'000, 2, false);
  add("slice-B", 4'000'000, 4, false);
  add("unsorted", 4'000'000, 2, true);
  for (int64_t entries = 1'000; entries <= 10'000'000; entries *= 10) {
    add("sweep/entries:" + std::to_string(entries), entries, 2, false, Memory::kKept);
  }
  return RunAll(argc, argv);
}
