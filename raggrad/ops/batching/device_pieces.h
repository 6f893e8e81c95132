// Pieces in device memory. Internal to the family.
//
// A piece is made by work that its bringer has queued on a stream, and joined by a kernel on its owner's. So an event
// is recorded when it is brought, for the join to wait for; and the bringer's stream waits for the join before the
// piece is dropped, because its memory goes back in the order of that stream.
#pragma once

#include <span>
#include <string_view>

#include "raggrad/core/context.h"
#include "raggrad/ops/batching/batching.h"

namespace raggrad::batching {

// That pieces of that type can be joined on that device, which is not the CPU.
Status CheckDevice(std::string_view op, Device device, DType dtype) noexcept;

// The piece with an event for what has been queued on `stream`. What nothing keeps alive is copied there. JoinOnDevice
// takes only such pieces.
Result<SharedView> KeepOnDevice(const Context& ctx, std::string_view op, const SharedView& piece,
                                void* stream) noexcept;

// The rows of the pieces one after the other, on ctx.stream; returns when that has been queued. The pieces fit.
Result<Tensor> JoinOnDevice(const Context& ctx, std::string_view op, std::span<const SharedView> pieces) noexcept;

}  // namespace raggrad::batching
