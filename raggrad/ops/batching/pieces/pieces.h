// Copies of pieces. Internal to the family.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "raggrad/core/context.h"
#include "raggrad/ops/batching/batching.h"
#include "raggrad/ops/batching/pieces/piece_list.h"

namespace raggrad::batching {

// Bytes of the elements and, for strings, of their characters.
int64_t BytesOf(const TensorView& view) noexcept;

// Joins the pieces and the padding in host memory.
Result<Tensor> Join(const Context& ctx, int output, const PieceList& list) noexcept;

// Joins pieces on the device where they are.
Result<Tensor> JoinShared(const Context& ctx, std::string_view op, std::span<const SharedView> pieces) noexcept;

// A copy of the rows [begin, end) of a view.
Result<Tensor> CopyRows(const Context& ctx, const TensorView& view, int64_t begin, int64_t end) noexcept;

// A tensor of the view's type and inner shape, without rows.
Result<Tensor> NoRows(const Context& ctx, int output, const TensorView& view) noexcept;

// Whether the view has elements that nothing keeps alive.
bool NeedsCopy(const SharedView& view) noexcept;
// The view with something that keeps it alive: its own keep-alive, or a copy.
Result<SharedView> Keep(const Context& ctx, const SharedView& view) noexcept;

}  // namespace raggrad::batching
