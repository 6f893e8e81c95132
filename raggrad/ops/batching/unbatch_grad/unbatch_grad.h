// The state of one UnbatchGrad resource. Internal to the family.
//
// A known key is in one of two tables. It is in unclaimed_ if its piece has come but no owner has listed it yet. It is
// in wanted_ if an owner that waits has listed it, whether its piece has come or not. The pieces that have come for
// such an owner are in its Batch, reserved for it.
#pragma once

#include <unordered_map>
#include <vector>

#include "raggrad/ops/batching/checks.h"
#include "raggrad/ops/batching/resource.h"
#include "raggrad/ops/batching/unbatch_grad/unbatch_grad_request.h"
#include "raggrad/ops/batching/waiting/blocked_call.h"

namespace raggrad::batching {

// Everything needed to end a call after unlocking: joining takes long, and callbacks are the user's code.
struct UnbatchGradEnding {
  Completion<Tensor> done = nullptr;  // null: the call has not ended
  BlockedCall<Tensor, UnbatchGradEnding>* blocked = nullptr;
  Status status = {};
  std::vector<SharedView> pieces = {};     // joined, if the status is OK; dropped otherwise
  void* stream = nullptr;                  // of the owner, on a GPU
  std::optional<TensorView> no_rows = {};  // the result has this type and inner shape, and no rows
};

// Checks that a piece fits the others and has the type of its owner's call. In a strict call it must also have as many
// rows as the index says.
Status AddPiece(PieceFit& fit, DType expected, const std::vector<IndexRow>& rows, size_t row,
                const TensorView& piece) noexcept;

class UnbatchGradResource final : public WaitingResource<UnbatchGradEnding> {
 public:
  using Blocked = BlockedCall<Tensor, UnbatchGradEnding>;

  using WaitingResource::WaitingResource;

  // False if the resource is closed; then `request` and `done` are untouched. `blocked`, if not null, is the thread
  // that waits for the call.
  bool Call(UnbatchGradRequest& request, Completion<Tensor>& done, Blocked* blocked) noexcept;
  // Completes the call, if it has ended: joins its pieces, or passes on its error.
  void Conclude(UnbatchGradEnding& ending) noexcept override;
  void Close() noexcept override;

 private:
  // An owner that waits.
  struct Batch {
    int64_t id = 0;
    DType dtype = DType::kInvalid;
    std::vector<IndexRow> rows = {};
    std::vector<SharedView> pieces = {};  // one per row; empty where the piece has not come
    size_t missing = 0;
    int64_t bytes = 0;
    void* stream = nullptr;
    PieceFit fit = {};
    Completion<Tensor> done = nullptr;
    Blocked* blocked = nullptr;
    int64_t ticket = 0;
    Alarm alarm = {};
  };
  struct Wanted {
    Batch* batch;
    size_t row;
    bool arrived;
  };
  using Batches = std::unordered_map<int64_t, Batch>;

  // The effect of a call on the resource.
  struct Decision {
    Status status = {};     // not OK: the call fails
    size_t missing = 0;     // pieces that an owner has to wait for
    PieceFit fit = {};      // of the pieces that are there, if it waits
    bool brings = false;    // its piece goes to another batch, or becomes unclaimed
    bool outlives = false;  // its piece may be needed after the call has returned
  };

  // Called under the lock. They change nothing.
  Decision Decide(const UnbatchGradRequest& request, bool blocked) const noexcept;
  Decision DecideOwner(const UnbatchGradRequest& request, bool wanted) const noexcept;
  Status CheckPresent(const UnbatchGradRequest& request, PieceFit& fit) const noexcept;

  // Called under the lock. They may throw std::bad_alloc or std::system_error; then nothing has changed.
  void CarryOut(const Decision& decision, const UnbatchGradRequest& request, Completion<Tensor>& done, Blocked* blocked,
                UnbatchGradEnding& mine, UnbatchGradEnding& other);
  Status StartWaiting(const Decision& decision, const UnbatchGradRequest& request, Completion<Tensor>& done,
                      Blocked* blocked);
  void StoreUnclaimed(const UnbatchGradRequest& request);

  // Called under the lock.
  Status Collect(const UnbatchGradRequest& request, std::vector<SharedView>& pieces) noexcept;
  Status Serve(Wanted& wanted, const UnbatchGradRequest& request, UnbatchGradEnding& other) noexcept;
  void Put(Wanted& wanted, SharedView piece, int64_t bytes) noexcept;
  AgedPieces<SharedView>::Entry TakeUnclaimed(int64_t key) noexcept;
  void Unregister(Batches::iterator batch) noexcept;
  void End(Batches::iterator batch, Status status, UnbatchGradEnding& ending) noexcept;

  // If a thread waits for the call, hands it the ending to conclude. False: no thread waits.
  static bool Hand(UnbatchGradEnding& ending) noexcept;
  bool TakeWait(int64_t key, int64_t ticket, Status why, UnbatchGradEnding& ending) noexcept override;
  void DropOldPieces() noexcept override { TakeExpired(unclaimed_); }

  AgedPieces<SharedView> unclaimed_;
  std::unordered_map<int64_t, Wanted> wanted_;
  Batches open_;  // by owner id
};

}  // namespace raggrad::batching
