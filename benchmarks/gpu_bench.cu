// Times the workloads of docs/gpu.md on this machine's GPU, through the public interface with operands in device
// memory. Times are those that a caller waits: with the allocation of outputs and the read of their size.
#include <cuda_runtime.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "benchmarks/gpu_segments.h"
#include "benchmarks/gpu_timing.h"
#include "raggrad/raggrad.h"
#include "raggrad/testing/bench_data.h"

namespace raggrad::bench {
namespace {

// A permutation of the words of `bits` bits.
uint64_t Scramble(uint64_t word, int bits) {
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  for (const uint64_t factor : {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb}) {
    word = word * factor & mask;
    word ^= word >> bits / 2;
  }
  return word;
}

// The map names four of every five places; the fifth is chosen at random.
Measured Fill(const Stopwatch& watch, int64_t n_full, bool shuffled, std::optional<Accumulation> accumulation = {}) {
  Generator random(1);
  const int64_t n = n_full / 5 * 4;
  const auto place_of = [](uint64_t entry) {
    const uint64_t group = entry / 4, within = entry % 4, gap = Scramble(group, 32) % 5;
    return static_cast<int64_t>(group * 5 + within + (within >= gap ? 1 : 0));
  };
  std::vector<int64_t> map;
  map.reserve(static_cast<size_t>(n));
  const int bits = std::bit_width(static_cast<uint64_t>(n));
  for (uint64_t i = 0; map.size() < static_cast<size_t>(n); ++i) {
    const uint64_t entry = shuffled ? Scramble(i, bits) : i;
    if (entry < static_cast<uint64_t>(n)) map.push_back(place_of(entry));
  }
  const OnDevice reverse_index_map(VectorView(map), watch.ctx());
  const OnDevice grad_values(VectorView(random.Values<float>(n_full)), watch.ctx());
  const Context ctx = watch.With(accumulation);
  return {watch.Time([&](const Context&) { return SparseFillEmptyRowsGrad(reverse_index_map, grad_values, ctx); }),
          n_full * 4 + n * (8 + 4)};
}

// Entries at random distances, in lexicographic order; the slice has half of each dimension.
Measured Slice(const Stopwatch& watch, int64_t n) {
  constexpr int64_t kMeanDistance = 100, kColumns = 1000;
  Generator random(1);
  const int64_t start[] = {n * kMeanDistance / kColumns / 4, kColumns / 4};
  std::vector<int64_t> input, output;
  input.reserve(static_cast<size_t>(2 * n));
  for (int64_t i = 0, place = 0; i < n; ++i, place += 1 + random.Below(2 * kMeanDistance - 1)) {
    const int64_t row = place / kColumns, column = place % kColumns;
    input.insert(input.end(), {row, column});
    const bool inside = row >= start[0] && row < 3 * start[0] && column >= start[1] && column < 3 * start[1];
    if (inside) output.insert(output.end(), {row - start[0], column - start[1]});
  }
  const auto m = static_cast<int64_t>(output.size()) / 2;
  const OnDevice input_indices(TensorView::Of(input.data(), Shape{n, 2}), watch.ctx());
  const OnDevice output_indices(TensorView::Of(output.data(), Shape{m, 2}), watch.ctx());
  const OnDevice grad(VectorView(random.Values<float>(m)), watch.ctx());
  return {watch.Time([&](const Context& ctx) {
            return SparseSliceGrad(grad, input_indices, TensorView::Vector<int64_t>(start), output_indices, ctx);
          }),
          (n + m) * (2 * 8 + 4)};
}

Measured RaggedPieces(const Stopwatch& watch, int64_t pieces) {
  constexpr int64_t kColumns = 64;
  Generator random(1);
  std::vector<int64_t> splits{0};
  for (int64_t i = 0; i < pieces; ++i) splits.push_back(splits.back() + random.Below(40));
  const int64_t rows = splits.back();
  const std::vector<float> values = random.Values<float>(rows * kColumns);
  const OnDevice all(TensorView::Of(values.data(), Shape{rows, kColumns}), watch.ctx());
  std::vector<std::optional<RaggedView>> elements;
  for (size_t i = 0; i + 1 < splits.size(); ++i) {
    TensorView piece = all;
    piece.data = piece.As<float>() + splits[i] * kColumns;
    piece.shape = Shape{splits[i + 1] - splits[i], kColumns};
    elements.emplace_back(RaggedView{{}, piece});
  }
  const std::vector<int32_t> shape{static_cast<int32_t>(rows), static_cast<int32_t>(kColumns)};
  return {watch.Time([&](const Context& ctx) {
            return RaggedTensorToVariantGradient({Shape{pieces}, elements}, VectorView(splits), VectorView(shape),
                                                 DType::kFloat32, ctx);
          }),
          2 * rows * kColumns * 4};
}

// The speed of memory: a copy of one GiB.
Measured Copy(const Stopwatch& watch) {
  constexpr size_t kBytes = size_t{1} << 30;
  void *from = nullptr, *to = nullptr;
  Check(cudaMalloc(&from, kBytes));
  Check(cudaMalloc(&to, kBytes));
  const double ms = watch.Time([&](const Context& ctx) -> Result<int> {
    Check(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(ctx.stream)));
    return 0;
  });
  Check(cudaFree(from));
  Check(cudaFree(to));
  return {ms, 2 * static_cast<int64_t>(kBytes)};
}

struct Workload {
  std::string name;
  double target, peer;  // milliseconds on an H200; 0 if there is none
  std::string_view peer_name;
  std::function<Measured(const Stopwatch&)> measure;
};

template <class T, class I>
auto SegmentOf(const Sizes& sizes) {
  return [sizes](const Stopwatch& watch) { return Segment<T, I>(watch, sizes); };
}

template <class T, class I>
auto PoolOf(const Sizes& sizes, bool weights_grad = false) {
  return [sizes, weights_grad](const Stopwatch& watch) { return Pool<T, I>(watch, sizes, weights_grad); };
}

// The workload, the same with weights, and the same with reproducible sums. Targets are 1.15 and 1.25 times the time
// that the first has in the same run, so they are not known beforehand.
template <class T, class I>
void AddVariants(const std::string& name, Sizes sizes, std::vector<Workload>& all) {
  all.push_back({name + "-fast", 0, 0, "", SegmentOf<T, I>(sizes)});
  sizes.accumulation = Accumulation::kReproducible;
  all.push_back({name + "-reproducible", 0, 0, "", SegmentOf<T, I>(sizes)});
  sizes.accumulation = {};
  sizes.weighted = true;
  all.push_back({name + "-weighted", 0, 0, "", SegmentOf<T, I>(sizes)});
}

std::vector<Workload> Variants() {
  const Sizes uniform{65'536, 20, 64, 1'000'000, Law::kUniform}, zipf{65'536, 20, 64, 1'000'000, Law::kZipf};
  const Sizes c{8'192, 50, 256, 100'000, Law::kZipf};
  std::vector<Workload> all;
  AddVariants<float, int32_t>("sums-A-uniform-f32-int32", uniform, all);
  AddVariants<BFloat16, int64_t>("sums-A-uniform-bf16-int64", uniform, all);
  AddVariants<float, int32_t>("sums-A-zipf-f32-int32", zipf, all);
  AddVariants<BFloat16, int64_t>("sums-A-zipf-bf16-int64", zipf, all);
  AddVariants<double, int32_t>("sums-A-zipf-f64-int32", zipf, all);
  AddVariants<float, int32_t>("sums-B-f32-int32", {65'536, 20, 128, 10'000'000, Law::kUniform}, all);
  AddVariants<float, int32_t>("sums-C-f32-int32", c, all);
  AddVariants<float, int32_t>("sums-D-f32-int32", {1'024, 8, 32, 10'000, Law::kZipf}, all);
  Sizes planned = uniform;
  planned.with_plan = true;
  AddVariants<float, int32_t>("sums-A-uniform-f32-int32-plan", planned, all);
  for (const auto& [name, sizes] : {std::pair{"pool-A-uniform-f32-int32", uniform}, {"pool-C-f32-int32", c}}) {
    Sizes variant = sizes;
    all.push_back({name, 0, 0, "", PoolOf<float, int32_t>(variant)});
    variant.accumulation = Accumulation::kReproducible;
    all.push_back({std::string(name) + "-reproducible", 0, 0, "", PoolOf<float, int32_t>(variant)});
    variant.accumulation = {};
    variant.weighted = true;
    all.push_back({std::string(name) + "-weighted", 0, 0, "", PoolOf<float, int32_t>(variant)});
    all.push_back({std::string(name) + "-weights-grad", 0, 0, "", PoolOf<float, int32_t>(variant, true)});
  }
  for (const auto& [name, sizes] : {std::pair{"padded-A-uniform-f32-int32", uniform},
                                    {"padded-A-zipf-f32-int32", zipf},
                                    {"padded-C-f32-int32", c}}) {
    all.push_back({name, 0, 0, "", [sizes](const Stopwatch& watch) { return Padded<float, int32_t>(watch, sizes); }});
  }
  for (const auto& [name, shuffled, ascend] : {std::tuple{"rows-A-f32-shuffled", true, false},
                                               {"rows-A-f32-in-order", false, false},
                                               {"rows-A-f32-known-to-ascend", false, true}}) {
    all.push_back({name, 0, 0, "", [uniform, shuffled, ascend](const Stopwatch& watch) {
                     return SegmentSum<float>(watch, uniform, shuffled, ascend);
                   }});
  }
  for (const auto& [name, sizes] : {std::pair{"adam-A-uniform-f32-int32-plan", uniform},
                                    {"adam-A-zipf-f32-int32-plan", zipf},
                                    {"adam-C-f32-int32-plan", c}}) {
    all.push_back({name, 0, 0, "", [sizes](const Stopwatch& watch) { return AdamStep(watch, sizes); }});
  }
  for (const auto& [name, accumulation] : {std::pair{"sums-fill-A-fast", Accumulation::kFast},
                                           {"sums-fill-A-reproducible", Accumulation::kReproducible}}) {
    all.push_back({name, 0, 0, "",
                   [mode = accumulation](const Stopwatch& watch) { return Fill(watch, 50'000'000, false, mode); }});
  }
  return all;
}

std::vector<Workload> AllWorkloads() {
  const Sizes uniform{65'536, 20, 64, 1'000'000, Law::kUniform}, zipf{65'536, 20, 64, 1'000'000, Law::kZipf};
  const auto with_plan = [](Sizes sizes) {
    sizes.with_plan = true;
    return sizes;
  };
  return {
      {"segment-A-uniform-f32-int32", 0.20, 0.272, "cuEmbed", SegmentOf<float, int32_t>(uniform)},
      {"segment-A-uniform-f32-int64", 0.23, 0.374, "cuEmbed", SegmentOf<float, int64_t>(uniform)},
      {"segment-A-uniform-bf16-int32", 0.17, 0, "", SegmentOf<BFloat16, int32_t>(uniform)},
      {"segment-A-uniform-bf16-int64", 0.20, 1.39, "PyTorch", SegmentOf<BFloat16, int64_t>(uniform)},
      {"segment-A-zipf-f32-int32", 0.165, 0.210, "cuEmbed", SegmentOf<float, int32_t>(zipf)},
      {"segment-A-zipf-f32-int64", 0.195, 0.311, "cuEmbed", SegmentOf<float, int64_t>(zipf)},
      {"segment-A-zipf-bf16-int32", 0.155, 0, "", SegmentOf<BFloat16, int32_t>(zipf)},
      {"segment-A-zipf-bf16-int64", 0.185, 0, "", SegmentOf<BFloat16, int64_t>(zipf)},
      {"segment-A-uniform-f32-int32-plan", 0.105, 0.144, "cuEmbed", SegmentOf<float, int32_t>(with_plan(uniform))},
      {"segment-A-zipf-f32-int32-plan", 0.07, 0.082, "cuEmbed", SegmentOf<float, int32_t>(with_plan(zipf))},
      {"segment-B-f32-int32", 0.42, 0.580, "cuEmbed",
       SegmentOf<float, int32_t>({65'536, 20, 128, 10'000'000, Law::kUniform})},
      {"segment-C-f32-int32", 0.14, 0.176, "cuEmbed", SegmentOf<float, int32_t>({8'192, 50, 256, 100'000, Law::kZipf})},
      {"segment-D-f32-int32", 0.06, 0.104, "cuEmbed", SegmentOf<float, int32_t>({1'024, 8, 32, 10'000, Law::kZipf})},
      {"segment-E-f16-int32", 0.45, 0.711, "cuEmbed",
       SegmentOf<Half, int32_t>({65'536, 64, 256, 10'000'000, Law::kZipf, false, false, {}, /*zipf=*/1.15})},
      {"fill-A", 0.28, 0.72, "PyTorch", [](const Stopwatch& watch) { return Fill(watch, 50'000'000, false); }},
      {"fill-B", 1.2, 2.51, "PyTorch", [](const Stopwatch& watch) { return Fill(watch, 50'000'000, true); }},
      {"slice-A", 0.25, 0.69, "PyTorch", [](const Stopwatch& watch) { return Slice(watch, 20'000'000); }},
      {"ragged-A", 0.10, 4.69, "PyTorch", [](const Stopwatch& watch) { return RaggedPieces(watch, 16'384); }},
  };
}

void PrintTime(double ms) {
  if (ms > 0) {
    std::printf(" %8.3f", ms);
  } else {
    std::printf(" %8s", "-");
  }
}

void RunAll(std::string_view filter) {
  if (const Status status = CudaStatus(); !status.ok()) Fail(status.message());
  const Stopwatch watch;
  cudaDeviceProp device;
  Check(cudaGetDeviceProperties(&device, 0));
  const Measured copy = Copy(watch);
  const auto bandwidth = [](const Measured& measured) {
    return static_cast<double>(measured.bytes) / measured.ms / 1e6;
  };
  std::printf("%s, copy %.0f GB/s; median of %d\n", device.name, bandwidth(copy), kRuns);
  std::printf("%-34s %8s %8s %8s %-8s %8s %8s\n", "workload", "ms", "target", "peer", "", "GB/s", "of copy");
  std::vector<Workload> workloads = AllWorkloads();
  std::ranges::move(Variants(), std::back_inserter(workloads));
  for (const Workload& workload : workloads) {
    if (workload.name.find(filter) == std::string::npos) continue;
    const Measured measured = workload.measure(watch);
    std::printf("%-34s", workload.name.c_str());
    for (const double ms : {measured.ms, workload.target, workload.peer}) PrintTime(ms);
    std::printf(" %-8.*s %8.0f %7.0f%%\n", static_cast<int>(workload.peer_name.size()), workload.peer_name.data(),
                bandwidth(measured), 100 * bandwidth(measured) / bandwidth(copy));
    std::fflush(stdout);
  }
}

constexpr char kHelp[] =
    "gpu_bench [--filter TEXT]   times the workloads whose names contain TEXT on the current GPU.\n"
    "Targets and peers' times are for an H200. GB/s counts each input read once and each output written once.\n";

}  // namespace
}  // namespace raggrad::bench

int main(int argc, char** argv) {
  std::string_view filter;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--filter" && i + 1 < argc) {
      filter = argv[++i];
    } else if (argument == "--help") {
      std::fputs(raggrad::bench::kHelp, stdout);
      return 0;
    } else {
      std::fputs(raggrad::bench::kHelp, stderr);
      return 2;
    }
  }
  raggrad::bench::RunAll(filter);
  return 0;
}
