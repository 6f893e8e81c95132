// Workloads segment-*, tiny calls, and a sweep that shows whether the cost per id stays the same.
#include "raggrad/ops/sparse_segment/sparse_segment.h"
#include "raggrad/tensorflow_names.h"
#include "raggrad/testing/bench.h"

namespace raggrad::bench {
namespace {

enum class Law { kUniform, kZipf, kOneRow, kDistinct };

struct Sizes {
  int64_t segments, ids, width, rows;
  Law law;
  Memory memory = Memory::kFresh;
};

template <class I>
std::vector<I> Rows(Generator& random, const Sizes& sizes) {
  switch (sizes.law) {
    case Law::kUniform:
      return random.UniformIds<I>(sizes.ids, sizes.rows);
    case Law::kZipf:
      return ZipfRows<I>(random, sizes.ids, sizes.rows);
    case Law::kOneRow:
      return std::vector<I>(static_cast<size_t>(sizes.ids), static_cast<I>(sizes.rows / 2));
    case Law::kDistinct:
      return Permutation<I>(random, sizes.ids);  // sizes.rows == sizes.ids
  }
  return {};
}

template <class T, class I>
void MeanGradV2(benchmark::State& state, const Sizes& sizes) {
  Generator random(1);
  const std::vector<I> indices = Rows<I>(random, sizes);
  std::vector<I> segment_ids(indices.size());
  for (size_t i = 0; i < segment_ids.size(); ++i) {
    segment_ids[i] = static_cast<I>(static_cast<int64_t>(i) * sizes.segments / sizes.ids);
  }
  const std::vector<T> grad = random.Values<T>(sizes.segments * sizes.width);
  const auto rows = static_cast<int32_t>(sizes.rows);
  const MemoryContext ctx(sizes.memory);
  Repeat(state, sizes.ids > 1000, [&] {
    return SparseSegmentMeanGradV2(TensorView::Of(grad.data(), Shape{sizes.segments, sizes.width}), VectorView(indices),
                                   VectorView(segment_ids), TensorView::Scalar(rows), *ctx);
  });
  std::vector<I> used = indices;
  std::ranges::sort(used);
  const int64_t unique = std::unique(used.begin(), used.end()) - used.begin();
  const auto index_size = static_cast<int64_t>(sizeof(I)), row_size = sizes.width * static_cast<int64_t>(sizeof(T));
  CountTraffic(state, 2 * sizes.ids * index_size + sizes.segments * row_size + unique * (row_size + index_size));
  using benchmark::Counter;
  state.counters["seconds_per_id"] =
      Counter(static_cast<double>(sizes.ids), Counter::kIsIterationInvariantRate | Counter::kInvert);
}

template <class T, class I>
void RegisterSizes(const std::string& name, const Sizes& sizes) {
  Register(name, [sizes](benchmark::State& state) { MeanGradV2<T, I>(state, sizes); });
}

template <class T>
void RegisterA(const std::string& dtype) {
  for (const auto& [law, name] : {std::pair{Law::kUniform, "uniform"}, std::pair{Law::kZipf, "zipf"}}) {
    const Sizes sizes{65'536, 65'536 * 20, 64, 1'000'000, law};
    RegisterSizes<T, int32_t>("segment-A-" + std::string(name) + "-" + dtype + "-int32", sizes);
    RegisterSizes<T, int64_t>("segment-A-" + std::string(name) + "-" + dtype + "-int64", sizes);
  }
}

void RegisterSweep() {
  const std::pair<Law, const char*> laws[] = {
      {Law::kUniform, "uniform"}, {Law::kOneRow, "one-row"}, {Law::kDistinct, "distinct"}};
  for (const auto& [law, name] : laws) {
    for (const int64_t width : {1, 2, 3, 7, 64, 1023}) {
      // Usual widths get every size, odd ones the size that would show a cliff. No output exceeds 8 GB.
      for (int64_t ids = width == 1 || width == 64 ? 10'000 : 1'000'000; ids <= 100'000'000; ids *= 10) {
        if (ids * width > 2'000'000'000 || (width != 1 && width != 64 && ids > 1'000'000)) continue;
        RegisterSizes<float, int32_t>(
            "sweep/" + std::string(name) + "/width:" + std::to_string(width) + "/ids:" + std::to_string(ids),
            {std::max<int64_t>(1, ids / 20), ids, width, ids, law, Memory::kKept});
      }
    }
  }
}

}  // namespace
}  // namespace raggrad::bench

int main(int argc, char** argv) {
  using namespace raggrad::bench;
  using raggrad::BFloat16;
  RegisterSizes<float, int32_t>("tiny-SparseSegmentMeanGradV2", {2, 4, 4, 10, Law::kUniform});
  RegisterA<float>("f32");
  RegisterA<BFloat16>("bf16");
  RegisterSizes<float, int64_t>("segment-B-f32", {65'536, 65'536 * 20, 128, 10'000'000, Law::kUniform});
  RegisterSizes<float, int64_t>("segment-C-f32", {8'192, 8'192 * 50, 256, 100'000, Law::kZipf});
  RegisterSizes<BFloat16, int64_t>("segment-C-bf16", {8'192, 8'192 * 50, 256, 100'000, Law::kZipf});
  RegisterSizes<float, int64_t>("segment-D-f32", {1'024, 1'024 * 8, 32, 10'000, Law::kZipf});
  RegisterSizes<float, int64_t>("segment-200k-f32", {8'192, 200'000, 64, 200'000, Law::kUniform});
  RegisterSweep();
  return RunAll(argc, argv);
}
