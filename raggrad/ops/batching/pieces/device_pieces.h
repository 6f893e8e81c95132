// Pieces in device memory. Internal to the family.
//
// A piece is computed by work on the stream of the call that brings it, and joined by a kernel on the owner's stream.
// Two events order these streams. One is recorded when the piece is brought, and the join waits for it. The other is
// recorded after the join, and the first stream waits for it before the piece is dropped, because the piece's memory is
// reused in the order of that stream.
#pragma once

#include <span>
#include <string_view>

#include "raggrad/core/context.h"
#include "raggrad/ops/batching/batching.h"

namespace raggrad::batching {

// Checks that pieces of that type can be joined on that device, which is not the CPU.
Status CheckDevice(std::string_view op, Device device, DType dtype) noexcept;

// The piece with an event for the work that has been queued on `stream`. A piece without a keep-alive is copied on that
// stream. JoinOnDevice takes only pieces that come from here.
Result<SharedView> KeepOnDevice(const Context& ctx, std::string_view op, const SharedView& piece,
                                void* stream) noexcept;

// Joins pieces that fit together, on ctx.stream. Returns when the work has been queued.
Result<Tensor> JoinOnDevice(const Context& ctx, std::string_view op, std::span<const SharedView> pieces) noexcept;

}  // namespace raggrad::batching
