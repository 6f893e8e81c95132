// Workloads segment-*, with and without weights, tiny calls, and a sweep that shows whether the cost per id stays the
// same.
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

// Ascending segment ids, all segments of one length.
template <class I>
std::vector<I> EvenSegments(const Sizes& sizes) {
  std::vector<I> segment_ids(static_cast<size_t>(sizes.ids));
  for (size_t i = 0; i < segment_ids.size(); ++i) {
    segment_ids[i] = static_cast<I>(static_cast<int64_t>(i) * sizes.segments / sizes.ids);
  }
  return segment_ids;
}

template <class T, class I>
void MeanGradV2(benchmark::State& state, const Sizes& sizes) {
  Generator random(1);
  const std::vector<I> indices = Rows<I>(random, sizes);
  const std::vector<I> segment_ids = EvenSegments<I>(sizes);
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

// Each function without weights and with them, and the gradient of the weights: benchmark name/forward, ...
template <class T>
void RegisterWeights(const std::string& name, const Sizes& sizes) {
  struct Operands {
    std::vector<int32_t> indices, segment_ids;
    std::vector<T> data, grad;
    std::vector<float> weights;
  };
  using Run = Result<Tensor> (*)(const SegmentPooling&, const Operands&, const Sizes&, const Context&);
  const auto add = [&](const std::string& part, bool weighted, Run run) {
    Register(name + "/" + part, [sizes, weighted, run](benchmark::State& state) {
      Generator random(1);
      const Operands in = {Rows<int32_t>(random, sizes), EvenSegments<int32_t>(sizes),
                           random.Values<T>(sizes.rows * sizes.width), random.Values<T>(sizes.segments * sizes.width),
                           random.Values<float>(sizes.ids)};
      const SegmentPooling pooling = weighted ? SegmentPooling(SegmentCombiner::kMean, {VectorView(in.weights)})
                                              : SegmentPooling(SegmentCombiner::kMean);
      const MemoryContext ctx(Memory::kKept);
      Repeat(state, true, [&] { return run(pooling, in, sizes, *ctx); });
    });
  };
  const auto forward = [](const SegmentPooling& pooling, const Operands& in, const Sizes& s, const Context& ctx) {
    return SparseSegment(pooling, TensorView::Of(in.data.data(), Shape{s.rows, s.width}), VectorView(in.indices),
                         VectorView(in.segment_ids), ctx);
  };
  const auto grad = [](const SegmentPooling& pooling, const Operands& in, const Sizes& s,
                       const Context& ctx) -> Result<Tensor> {
    auto rows =
        SparseSegmentGradV2(pooling, TensorView::Of(in.grad.data(), Shape{s.segments, s.width}), VectorView(in.indices),
                            VectorView(in.segment_ids), TensorView::Scalar(static_cast<int32_t>(s.rows)), ctx);
    if (!rows.ok()) return rows.status();
    return std::move(rows->output);
  };
  const auto weights_grad = [](const SegmentPooling& pooling, const Operands& in, const Sizes& s, const Context& ctx) {
    return SparseSegmentWeightsGrad(pooling, TensorView::Of(in.grad.data(), Shape{s.segments, s.width}),
                                    TensorView::Of(in.data.data(), Shape{s.rows, s.width}), VectorView(in.indices),
                                    VectorView(in.segment_ids), ctx);
  };
  add("forward", false, forward);
  add("forward-weighted", true, forward);
  add("weights-grad", true, weights_grad);
  add("grad", false, grad);
  add("grad-weighted", true, grad);
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
  RegisterWeights<float>("weights-A-uniform-f32", {65'536, 65'536 * 20, 64, 1'000'000, Law::kUniform});
  RegisterWeights<float>("weights-A-zipf-f32", {65'536, 65'536 * 20, 64, 1'000'000, Law::kZipf});
  RegisterWeights<float>("weights-C-f32", {8'192, 8'192 * 50, 256, 100'000, Law::kZipf});
  RegisterWeights<BFloat16>("weights-C-bf16", {8'192, 8'192 * 50, 256, 100'000, Law::kZipf});
  RegisterSweep();
  return RunAll(argc, argv);
}
