// CPU backend of the forward. A first pass notes in one bit per entry whether it is kept; a second pass copies. So the
// indices of entries that are not kept are read once, and their values never.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <optional>
#include <utility>

#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/padding.h"
#include "raggrad/cpu/strings.h"
#include "raggrad/ops/sparse_slice/kernels.h"

namespace raggrad::sparse_slice::on_cpu {
namespace {

using cpu::CheckStrings;
using cpu::Chunks;
using cpu::CopyStrings;
using cpu::ForEachChunkUntilStopped;
using cpu::SplitEvenly;

constexpr int64_t kWord = 64;     // entries whose bits share a word
constexpr int64_t kGrain = 8192;  // entries that pay for a thread: some 10 us of work
constexpr int64_t kChunksPerWorker = 4;
constexpr int64_t kAnyDims = -1;  // the number of columns is known only at run time

template <int64_t kDims>
class Box {
 public:
  explicit Box(const ForwardProblem& problem) noexcept : d_(problem.d()) {
    for (size_t c = 0; c < problem.start.size(); ++c) {
      start_[c] = static_cast<uint64_t>(problem.start[c]);
      size_[c] = BoxSize(problem.start[c], problem.size[c]);
    }
  }

  int64_t d() const noexcept { return kDims == kAnyDims ? d_ : kDims; }

  bool Holds(const int64_t* index) const noexcept {
    bool in = true;
    for (int64_t c = 0; c < d(); ++c) in &= Shifted(index, c) < size_[static_cast<size_t>(c)];
    return in;
  }
  void Shift(const int64_t* index, int64_t* out) const noexcept {
    for (int64_t c = 0; c < d(); ++c) out[c] = static_cast<int64_t>(Shifted(index, c));
  }

 private:
  // An index below `start` wraps to more than any size.
  uint64_t Shifted(const int64_t* index, int64_t c) const noexcept {
    return static_cast<uint64_t>(index[c]) - start_[static_cast<size_t>(c)];
  }

  static constexpr size_t kMaxDims = static_cast<size_t>(kDims == kAnyDims ? Shape::kMaxRank : kDims);
  std::array<uint64_t, kMaxDims> start_;
  std::array<uint64_t, kMaxDims> size_;
  int64_t d_;
};

// Which entries are kept, and where in the output each chunk begins. Chunks consist of whole words of bits.
struct Kept {
  Chunks chunks;
  Scratch<uint64_t> bits;
  Scratch<int64_t> begins;  // [chunks.count]
  int64_t total = 0;
};

template <int64_t kDims>
Result<Kept> Select(const ForwardProblem& problem, const Context& ctx) noexcept {
  const int64_t n = problem.n();
  const int64_t words = (n + kWord - 1) / kWord;
  Executor& executor = ExecutorOf(ctx);
  const Chunks chunks = SplitEvenly(executor, words, kGrain / kWord, kChunksPerWorker);
  auto bits = Scratch<uint64_t>::Make(ctx, words);
  if (!bits.ok()) return bits.status();
  auto begins = Scratch<int64_t>::Make(ctx, chunks.count);
  if (!begins.ok()) return begins.status();
  const Box<kDims> box(problem);
  Status selected = ForEachChunkUntilStopped(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    int64_t count = 0;
    for (int64_t word = begin; word < end; ++word) {
      const int64_t* index = problem.indices + word * kWord * box.d();
      uint64_t mask = 0;
      for (int64_t bit = 0; bit < std::min(kWord, n - word * kWord); ++bit, index += box.d()) {
        mask |= uint64_t{box.Holds(index)} << bit;
      }
      (*bits)[word] = mask;
      count += std::popcount(mask);
    }
    (*begins)[chunk] = count;
  });
  if (!selected.ok()) return selected;
  int64_t total = 0;
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) total += std::exchange((*begins)[chunk], total);
  return Kept{chunks, *std::move(bits), *std::move(begins), total};
}

// Calls copy(entry, place, count) for runs of kept entries, which lie together in the output: all of a word, or one.
template <class F>
Status ForEachKept(const Kept& kept, Executor& executor, const F& copy) noexcept {
  return ForEachChunkUntilStopped(executor, kept.chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    int64_t place = kept.begins[chunk];
    for (int64_t word = begin; word < end; ++word) {
      uint64_t mask = kept.bits[word];
      if (mask == ~uint64_t{0}) {
        copy(word * kWord, place, kWord);
        place += kWord;
        continue;
      }
      for (; mask != 0; mask &= mask - 1) copy(word * kWord + std::countr_zero(mask), place++, 1);
    }
  });
}

template <int64_t kDims>
Status CopyIndices(const ForwardProblem& problem, const Kept& kept, Executor& executor, int64_t* out) noexcept {
  const Box<kDims> box(problem);
  return ForEachKept(kept, executor, [&](int64_t entry, int64_t place, int64_t count) {
    for (int64_t k = 0; k < count; ++k) {
      box.Shift(problem.indices + (entry + k) * box.d(), out + (place + k) * box.d());
    }
  });
}

// Copies values by their size: bits stay what they are, and types of one size share the code.
template <size_t kBytes>
Status CopyValues(const ForwardProblem& problem, const Kept& kept, Executor& executor, void* values) noexcept {
  const std::byte* const in = problem.values.As<std::byte>();
  std::byte* const out = static_cast<std::byte*>(values);
  return ForEachKept(kept, executor, [=](int64_t entry, int64_t place, int64_t count) {
    const auto offset = [](int64_t elements) { return static_cast<size_t>(elements) * kBytes; };
    const std::byte* const from = in + offset(entry);
    std::byte* const to = out + offset(place);
    if (count == 1) {
      std::copy_n(from, kBytes, to);  // one load and one store
    } else {
      std::copy_n(from, offset(count), to);
    }
  });
}

// The kept values, and zeros up to `room` of them.
Result<Tensor> KeptValues(const ForwardProblem& problem, const Kept& kept, int64_t room, const Context& ctx) noexcept {
  return Visit(SliceTypes{}, problem.values.dtype, [&]<class T>() -> Result<Tensor> {
    if constexpr (std::is_same_v<T, String>) {
      auto strings = Scratch<String>::Make(ctx, room);
      if (!strings.ok()) return strings.status();
      if (Status s = CopyValues<sizeof(String)>(problem, kept, ExecutorOf(ctx), strings->data()); !s.ok()) return s;
      std::fill_n(strings->data() + kept.total, room - kept.total, String{});
      return CopyStrings(ctx, 1, Shape{room}, {strings->data(), static_cast<size_t>(room)});
    } else {
      auto values = AllocateOutput(ctx, 1, kDTypeOf<T>, Shape{room});
      if (!values.ok()) return values;
      if (Status s = CopyValues<sizeof(T)>(problem, kept, ExecutorOf(ctx), values->data()); !s.ok()) return s;
      cpu::ZeroRowsFrom(kept.total, *values, ctx);
      return values;
    }
  });
}

struct Sliced {
  SparseSliceOutput tensors;
  int64_t kept = 0;
};

// max_kept unset: room for exactly as many entries as are kept.
template <int64_t kDims>
Result<Sliced> Slice(const ForwardProblem& problem, std::optional<int64_t> max_kept, const Context& ctx) noexcept {
  const Result<Kept> kept = Select<kDims>(problem, ctx);
  if (!kept.ok()) return kept.status();
  const int64_t room = max_kept.value_or(kept->total);
  if (kept->total > room) return TooMany("SparseSlice", "entries", "max_kept", room, kept->total);
  auto output_indices = AllocateOutput(ctx, 0, DType::kInt64, Shape{room, problem.d()});
  if (!output_indices.ok()) return output_indices.status();
  auto output_values = KeptValues(problem, *kept, room, ctx);
  if (!output_values.ok()) return output_values.status();
  auto output_shape = AllocateOutput(ctx, 2, DType::kInt64, Shape{problem.d()});
  if (!output_shape.ok()) return output_shape.status();
  const Status copied = CopyIndices<kDims>(problem, *kept, ExecutorOf(ctx), output_indices->As<int64_t>());
  if (!copied.ok()) return copied;
  cpu::PadIndicesFrom(kept->total, *output_indices, problem.padding(), ctx);
  for (size_t c = 0; c < problem.shape.size(); ++c) {
    output_shape->As<int64_t>()[c] = OutputDim(problem.shape[c], problem.start[c], problem.size[c]);
  }
  return Sliced{{*std::move(output_indices), *std::move(output_values), *std::move(output_shape)}, kept->total};
}

Result<Sliced> Slice(const ForwardProblem& problem, std::optional<int64_t> max_kept, const Context& ctx) noexcept {
  if (problem.values.dtype == DType::kString) {
    const std::span values(problem.values.As<String>(), static_cast<size_t>(problem.n()));
    if (Status s = CheckStrings("SparseSlice", "values", values, ExecutorOf(ctx)); !s.ok()) return s;
  }
  switch (problem.d()) {
    case 1:
      return Slice<1>(problem, max_kept, ctx);
    case 2:
      return Slice<2>(problem, max_kept, ctx);
    case 3:
      return Slice<3>(problem, max_kept, ctx);
    case 4:
      return Slice<4>(problem, max_kept, ctx);
    default:
      return Slice<kAnyDims>(problem, max_kept, ctx);
  }
}

}  // namespace

Result<SparseSliceOutput> Forward(const ForwardProblem& problem, const Context& ctx) noexcept {
  Result<Sliced> sliced = Slice(problem, /*max_kept=*/{}, ctx);
  if (!sliced.ok()) return sliced.status();
  return std::move(sliced->tensors);
}

Result<SparseSlicePaddedOutput> ForwardPadded(const ForwardProblem& problem, int64_t max_kept,
                                              const Context& ctx) noexcept {
  Result<Sliced> sliced = Slice(problem, max_kept, ctx);
  if (!sliced.ok()) return sliced.status();
  Result<Tensor> report = cpu::MakeReport(ctx, 3, PaddedForm::kSparseSlice, sliced->kept, max_kept);
  if (!report.ok()) return report.status();
  auto& [indices, values, shape] = sliced->tensors;
  return SparseSlicePaddedOutput{std::move(indices), std::move(values), std::move(shape), *std::move(report)};
}

}  // namespace raggrad::sparse_slice::on_cpu
