// Joins pieces along dimension 0. Internal to the family.
#pragma once

#include <span>
#include <string_view>

#include "raggrad/core/context.h"
#include "raggrad/ops/batching/batching.h"

namespace raggrad::batching {

// Bytes of the elements and, for strings, of their characters.
int64_t BytesOf(const TensorView& view) noexcept;

// The rows of the pieces one after the other, then `padding` copies of the first row of the first piece. The pieces
// fit. Written once, in parallel if it is worth it.
Result<Tensor> Join(const Context& ctx, int output, std::span<const TensorView> pieces, int64_t padding = 0) noexcept;

// The same for pieces with keep-alives.
Result<Tensor> JoinShared(const Context& ctx, std::string_view op, std::span<const SharedView> pieces) noexcept;

// A copy of the rows [begin, end) of a view.
Result<Tensor> CopyRows(const Context& ctx, const TensorView& view, int64_t begin, int64_t end) noexcept;

// A tensor of the view's type and inner shape, without rows.
Result<Tensor> NoRows(const Context& ctx, int output, const TensorView& view) noexcept;

// The view has elements that nothing keeps alive.
bool NeedsCopy(const SharedView& view) noexcept;
// The view with something that keeps it alive: what it came with, or a copy.
Result<SharedView> Keep(const Context& ctx, const SharedView& view) noexcept;

}  // namespace raggrad::batching
