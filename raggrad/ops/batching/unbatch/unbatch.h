// The state of one Unbatch resource. Internal to the family.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "raggrad/ops/batching/resource.h"

namespace raggrad::batching {

using UnbatchPieces = AgedPieces<Tensor>;

// An UnbatchCall whose operands have been checked and whose batch has been cut into pieces.
struct UnbatchRequest {
  int64_t id;
  DType dtype;
  std::optional<Tensor> own = {};      // the caller's rows, if it brought them itself
  UnbatchPieces::Entries pieces = {};  // the rows of the others, in the order of batch_index; keys are distinct
  Waiting waiting = {};
};

Result<UnbatchRequest> CheckUnbatch(const Context& ctx, const UnbatchCall& call) noexcept;

// A wait that ended without a piece.
struct UnbatchEnding {
  Completion<Tensor> done = nullptr;
  Status why = {};
};

class UnbatchResource final : public WaitingResource<UnbatchEnding> {
 public:
  using WaitingResource::WaitingResource;

  // False if the resource is closed; then `request` and `done` are untouched. `blocked`: a thread waits for the call,
  // so `done` is the library's and runs no code of the user's.
  bool Call(UnbatchRequest& request, Completion<Tensor>& done, bool blocked) noexcept;
  void Close() noexcept override;

 private:
  struct Waiter {
    Completion<Tensor> done = nullptr;
    bool blocked = false;
    DType dtype = DType::kInvalid;
    int64_t ticket = 0;
    Alarm alarm = {};
  };
  using Waiters = std::unordered_map<int64_t, Waiter>;

  // Called under the lock. Returns the call's result; nothing if it waits now. Pieces that calls are waiting for go to
  // `awaited`, those calls to `receivers`, in the same order. If it throws, nothing has changed.
  std::optional<Result<Tensor>> Arrive(UnbatchRequest& request, Completion<Tensor>& done, bool blocked,
                                       UnbatchPieces::Entries& awaited, std::vector<Waiter>& receivers);
  Status CheckRoomFor(const UnbatchRequest& request) const noexcept;
  // Returns waiting_.end() if the call is cancelled already.
  Waiters::iterator StartWaiting(const UnbatchRequest& request);
  void Store(UnbatchPieces::Entries& pieces);
  Waiter TakeWaiter(Waiters::iterator waiter) noexcept;
  // Completes a call with `rows`: the tensor, its error, or an error if it has another type than expected.
  void Deliver(Completion<Tensor>& done, DType expected, Result<Tensor>& rows) noexcept;

  bool TakeWait(int64_t key, int64_t ticket, Status why, UnbatchEnding& ending) noexcept override;
  void Conclude(UnbatchEnding& ending) noexcept override;
  void DropOldPieces() noexcept override { TakeExpired(stored_); }

  UnbatchPieces stored_;
  Waiters waiting_;
};

}  // namespace raggrad::batching
