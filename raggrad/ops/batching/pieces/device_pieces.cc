#include "raggrad/ops/batching/pieces/device_pieces.h"

#include <memory>
#include <new>
#include <utility>

#include "raggrad/core/operands.h"
#include "raggrad/cuda/batched_copy.h"
#include "raggrad/cuda/events.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/batching/pieces/piece_list.h"

namespace raggrad::batching {
namespace {

using cuda::BatchedCopy;
using cuda::Event;
using cuda::Events;
using cuda::StreamId;
using cuda::WithKernels;

// The keep-alive of every piece in device memory.
struct DevicePiece {
  std::shared_ptr<const void> keep_alive;
  Tensor copy;  // of a piece that came without a keep-alive
  StreamId stream;
  Event made;
};

const DevicePiece& Of(const SharedView& piece) noexcept {
  return *static_cast<const DevicePiece*>(piece.keep_alive.get());
}

// Calls f for the pieces that were made on another stream than the owner's.
template <class F>
Status ForOtherStreams(std::span<const SharedView> pieces, const StreamId& owner, const F& f) noexcept {
  for (const SharedView& piece : pieces) {
    if (Of(piece).stream == owner) continue;
    if (Status s = f(Of(piece)); !s.ok()) return s;
  }
  return {};
}

// Refuses cudaStreamPerThread, which names another stream in the thread that joins the piece. Refuses a stream that is
// being captured, because events of a graph mean nothing outside of it.
Result<StreamId> CheckStream(const Events& events, std::string_view op, void* stream) noexcept {
  Result<StreamId> id = events.identify(stream);
  if (!id.ok()) return id;
  if (id->thread != 0) {
    return InvalidArgument(op, "the stream is another one in every thread [stream: expected the same in all threads, ",
                           "got cudaStreamPerThread]");
  }
  const Result<bool> captured = events.is_captured(stream);
  if (!captured.ok()) return captured.status();
  if (*captured) {
    return InvalidArgument(op, "this call cannot be part of a CUDA graph [stream: expected one that is not being ",
                           "captured]");
  }
  return id;
}

Result<Tensor> JoinViews(const Context& ctx, std::string_view op, std::span<const SharedView> pieces) noexcept {
  const Result<PieceList> list = PieceList::Of(pieces);
  if (!list.ok()) return list.status();
  return WithKernels<BatchedCopy>(op, pieces[0].view.device, [&](const BatchedCopy& kernels) {
    return cuda::JoinListed(kernels, list->pieces(), 0, list->dtype(), list->shape(), ctx);
  });
}

}  // namespace

Status CheckDevice(std::string_view op, Device device, DType dtype) noexcept {
  if (!device.is_cuda() || dtype == DType::kString) return NoKernelForDevice(op, device);
  return cuda::FindKernels(op, Events::kSymbol).status();
}

Result<SharedView> KeepOnDevice(const Context& ctx, std::string_view op, const SharedView& piece,
                                void* stream) noexcept {
  Context on_stream = ctx;
  on_stream.stream = stream;
  const auto keep = [&](const Events& events) -> Result<SharedView> {
    const Result<StreamId> id = CheckStream(events, op, stream);
    if (!id.ok()) return id.status();
    try {
      const bool copies = piece.keep_alive == nullptr;
      Result<Tensor> copy = copies ? JoinViews(on_stream, op, {&piece, 1}) : Tensor();
      if (!copy.ok()) return copy.status();
      Result<Event> made = Event::Record(events, stream);
      if (!made.ok()) return made.status();
      const auto kept =
          std::make_shared<DevicePiece>(DevicePiece{piece.keep_alive, *std::move(copy), *id, *std::move(made)});
      return SharedView{copies ? kept->copy.view() : piece.view, kept};
    } catch (const std::bad_alloc&) {
      return MakeError(Code::kResourceExhausted, op, ": no memory for a piece");
    }
  };
  return WithKernels<Events>(op, piece.view.device, keep);
}

Result<Tensor> JoinOnDevice(const Context& ctx, std::string_view op, std::span<const SharedView> pieces) noexcept {
  const auto join = [&](const Events& events) -> Result<Tensor> {
    const Result<StreamId> owner = CheckStream(events, op, ctx.stream);
    if (!owner.ok()) return owner.status();
    const auto made = [&](const DevicePiece& piece) { return piece.made.Delay(*owner); };
    if (Status s = ForOtherStreams(pieces, *owner, made); !s.ok()) return s;
    Result<Tensor> joined = JoinViews(ctx, op, pieces);
    if (!joined.ok()) return joined;
    const Result<Event> read = Event::Record(events, ctx.stream);
    if (!read.ok()) return read.status();
    const auto dropped = [&](const DevicePiece& piece) { return read->Delay(piece.stream); };
    if (Status s = ForOtherStreams(pieces, *owner, dropped); !s.ok()) return s;
    return joined;
  };
  return WithKernels<Events>(op, pieces[0].view.device, join);
}

}  // namespace raggrad::batching
