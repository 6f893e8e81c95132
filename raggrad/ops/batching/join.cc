#include "raggrad/ops/batching/join.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "raggrad/core/error_text.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/strings.h"
#include "raggrad/ops/batching/device_pieces.h"

namespace raggrad::batching {
namespace {

constexpr int64_t kGrainBytes = 1 << 18;          // per chunk of a parallel copy at least
constexpr int64_t kMostBytes = int64_t{1} << 48;  // of a piece; no machine has more, and sums stay far from overflowing

int64_t Elements(const TensorView& view) noexcept { return view.shape.NumElements().value_or(0); }

int64_t RowElements(const TensorView& view) noexcept { return Shape::Product(view.shape.tail()).value_or(0); }

int64_t ElementBytes(const TensorView& view) noexcept { return static_cast<int64_t>(DTypeSize(view.dtype)); }

std::span<const String> Strings(const TensorView& view) noexcept {
  return {view.As<String>(), static_cast<size_t>(Elements(view))};
}

std::span<const String> FirstRow(const TensorView& view) noexcept {
  return Strings(view).first(static_cast<size_t>(RowElements(view)));
}

Result<Tensor> JoinStrings(const Context& ctx, int output, std::span<const TensorView> pieces, Shape shape,
                           int64_t padding) noexcept {
  const auto for_each_part = [&](const auto& f) {
    for (const TensorView& piece : pieces) f(Strings(piece));
    for (int64_t i = 0; i < padding; ++i) f(FirstRow(pieces[0]));
  };
  size_t characters = 0;
  for_each_part([&](std::span<const String> part) { characters = cpu::CountCharacters(part, characters); });
  Result<Tensor> joined = AllocateOutput(ctx, output, DType::kString, std::move(shape), characters);
  if (!joined.ok()) return joined;
  String* to = joined->As<String>();
  char* text = reinterpret_cast<char*>(to + Elements(joined->view()));
  for_each_part([&](std::span<const String> part) {
    text = cpu::CopyStrings(part, to, text);
    to += part.size();
  });
  return joined;
}

// Writes bytes [begin, end) of the joined pieces.
void CopyBytes(std::span<const TensorView> pieces, int64_t padding, int64_t begin, int64_t end, char* joined) noexcept {
  int64_t at = 0;
  const auto append = [&](const void* from, int64_t size) {
    const int64_t first = std::max(begin, at);
    const int64_t last = std::min(end, at + size);
    if (first < last) {
      std::memcpy(joined + first, static_cast<const char*>(from) + (first - at), static_cast<size_t>(last - first));
    }
    at += size;
  };
  for (const TensorView& piece : pieces) append(piece.data, Elements(piece) * ElementBytes(piece));
  const int64_t row_bytes = RowElements(pieces[0]) * ElementBytes(pieces[0]);
  for (int64_t i = 0; i < padding; ++i) append(pieces[0].data, row_bytes);
}

}  // namespace

int64_t BytesOf(const TensorView& view) noexcept {
  size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(Elements(view)), DTypeSize(view.dtype), &bytes)) return kMostBytes;
  if (view.dtype == DType::kString) bytes = cpu::CountCharacters(Strings(view), bytes);
  return static_cast<int64_t>(std::min<size_t>(bytes, kMostBytes));
}

Result<Tensor> Join(const Context& ctx, int output, std::span<const TensorView> pieces, int64_t padding) noexcept {
  int64_t rows = padding;
  for (const TensorView& piece : pieces) rows += piece.dim(0);
  Shape shape = Shape::WithDim0(rows, pieces[0].shape.tail());
  if (pieces[0].dtype == DType::kString) return JoinStrings(ctx, output, pieces, std::move(shape), padding);
  Result<Tensor> joined = AllocateOutput(ctx, output, pieces[0].dtype, std::move(shape));
  if (!joined.ok() || joined->bytes() == 0) return joined;
  // A small copy does not even look at the default pool, which would be started by that.
  Executor& executor = joined->bytes() > kGrainBytes ? ExecutorOf(ctx) : SerialExecutor();
  const cpu::Chunks chunks = cpu::SplitEvenly(executor, static_cast<int64_t>(joined->bytes()), kGrainBytes);
  cpu::ForEachChunk(executor, chunks, [&](int64_t /*chunk*/, int64_t begin, int64_t end) {
    CopyBytes(pieces, padding, begin, end, joined->As<char>());
  });
  return joined;
}

Result<Tensor> JoinShared(const Context& ctx, std::string_view op, std::span<const SharedView> pieces) noexcept {
  if (pieces[0].view.device != Device::kCpu) return JoinOnDevice(ctx, op, pieces);
  try {
    std::vector<TensorView> views;
    views.reserve(pieces.size());
    for (const SharedView& piece : pieces) views.push_back(piece.view);
    return Join(ctx, 0, views);
  } catch (const std::bad_alloc&) {
    return MakeError(Code::kResourceExhausted, op, ": no memory to join the pieces");
  }
}

Result<Tensor> CopyRows(const Context& ctx, const TensorView& view, int64_t begin, int64_t end) noexcept {
  TensorView rows = view;
  rows.shape = Shape::WithDim0(end - begin, view.shape.tail());
  if (!rows.shape.valid()) return Status(Code::kResourceExhausted, "no memory for the shape of a piece");
  const int64_t offset = begin * RowElements(view) * ElementBytes(view);
  if (view.data != nullptr) rows.data = static_cast<const char*>(view.data) + offset;
  return Join(ctx, 0, std::span(&rows, 1));
}

Result<Tensor> NoRows(const Context& ctx, int output, const TensorView& view) noexcept {
  Result<Tensor> empty = AllocateOutput(ctx, output, view.dtype, Shape::WithDim0(0, view.shape.tail()));
  if (!empty.ok() || view.device == Device::kCpu) return empty;
  return Tensor(ctx.allocator, nullptr, 0, view.dtype, empty->shape(), view.device);
}

bool NeedsCopy(const SharedView& view) noexcept { return view.keep_alive == nullptr && Elements(view.view) > 0; }

Result<SharedView> Keep(const Context& ctx, const SharedView& view) noexcept {
  if (!NeedsCopy(view)) return view;
  Result<Tensor> copy = Join(ctx, 0, std::span(&view.view, 1));
  if (!copy.ok()) return copy.status();
  try {
    auto kept = std::make_shared<Tensor>(*std::move(copy));
    return SharedView{kept->view(), kept};
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "no memory for a piece");
  }
}

}  // namespace raggrad::batching
