#include "raggrad/ops/batching/pieces/pieces.h"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "raggrad/cpu/join.h"
#include "raggrad/cpu/strings.h"
#include "raggrad/ops/batching/pieces/device_pieces.h"

namespace raggrad::batching {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 48;  // of one piece: more than machines have, and sums cannot overflow

int64_t Elements(const TensorView& view) noexcept { return view.shape.NumElements().value_or(0); }

Result<Tensor> Copy(const Context& ctx, const TensorView& view) noexcept {
  Result<PieceList> list = PieceList::Make(view, 1);
  if (!list.ok()) return list.status();
  list->Add(view);
  return Join(ctx, 0, *list);
}

}  // namespace

int64_t BytesOf(const TensorView& view) noexcept {
  size_t bytes = 0;
  const auto elements = static_cast<size_t>(Elements(view));
  if (__builtin_mul_overflow(elements, DTypeSize(view.dtype), &bytes)) return kMostBytes;
  if (view.dtype == DType::kString) bytes = cpu::CountCharacters({view.As<String>(), elements}, bytes);
  return static_cast<int64_t>(std::min<size_t>(bytes, kMostBytes));
}

Result<Tensor> Join(const Context& ctx, int output, const PieceList& list) noexcept {
  return cpu::Join({"pieces", output, list.pieces(), list.dtype(), list.shape(), list.repeated()}, ctx);
}

Result<Tensor> JoinShared(const Context& ctx, std::string_view op, std::span<const SharedView> pieces) noexcept {
  if (!pieces[0].view.device.is_cpu()) return JoinOnDevice(ctx, op, pieces);
  const Result<PieceList> list = PieceList::Of(pieces);
  if (!list.ok()) return list.status();
  return Join(ctx, 0, *list);
}

Result<Tensor> CopyRows(const Context& ctx, const TensorView& view, int64_t begin, int64_t end) noexcept {
  TensorView rows = view;
  rows.shape = Shape::WithDim0(end - begin, view.shape.tail());
  if (!rows.shape.valid()) return Status(Code::kResourceExhausted, "no memory for the shape of a piece");
  const auto value_bytes = static_cast<int64_t>(DTypeSize(view.dtype));
  const int64_t row_bytes = Shape::Product(view.shape.tail()).value_or(0) * value_bytes;
  if (view.data != nullptr) rows.data = static_cast<const char*>(view.data) + begin * row_bytes;
  return Copy(ctx, rows);
}

Result<Tensor> NoRows(const Context& ctx, int output, const TensorView& view) noexcept {
  Result<Tensor> empty = AllocateOutput(ctx, output, view.dtype, Shape::WithDim0(0, view.shape.tail()));
  if (!empty.ok() || view.device.is_cpu()) return empty;
  return Tensor(ctx.allocator, nullptr, 0, view.dtype, empty->shape(), view.device);
}

bool NeedsCopy(const SharedView& view) noexcept { return view.keep_alive == nullptr && Elements(view.view) > 0; }

Result<SharedView> Keep(const Context& ctx, const SharedView& view) noexcept {
  if (!NeedsCopy(view)) return view;
  Result<Tensor> copy = Copy(ctx, view.view);
  if (!copy.ok()) return copy.status();
  try {
    auto kept = std::make_shared<Tensor>(*std::move(copy));
    return SharedView{kept->view(), kept};
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "no memory for a piece");
  }
}

}  // namespace raggrad::batching
