// Decides the effect that a call has on its resource, before anything changes.
#include <optional>

#include "raggrad/ops/batching/unbatch_grad/unbatch_grad.h"

namespace raggrad::batching {
namespace {

constexpr std::string_view kOp = "UnbatchGrad";

}  // namespace

Status AddPiece(PieceFit& fit, DType expected, const std::vector<IndexRow>& rows, size_t row,
                const TensorView& piece) noexcept {
  if (Status s = fit.Add(kOp, static_cast<int64_t>(row), piece); !s.ok()) return s;
  if (Status s = CheckExpectedType(kOp, expected, piece.dtype); !s.ok()) return s;
  if (rows[row].rows.value_or(piece.dim(0)) == piece.dim(0)) return {};
  return InvalidArgument(kOp, "batch_index[", row, "]: the range has ", *rows[row].rows, " rows, the piece of key ",
                         rows[row].key, " has ", piece.dim(0));
}

UnbatchGradResource::Decision UnbatchGradResource::Decide(const UnbatchGradRequest& request,
                                                          bool blocked) const noexcept {
  const auto found = wanted_.find(request.id);
  const Wanted* wanted = found == wanted_.end() ? nullptr : &found->second;
  if (unclaimed_.Find(request.id) != nullptr || (wanted != nullptr && wanted->arrived)) {
    return {.status = InvalidArgument(kOp, "Two runs with the same batch key. [id: ", request.id, "]")};
  }
  if (!request.index_status.ok()) return {.status = request.index_status};
  Decision decision = request.owner ? DecideOwner(request, wanted != nullptr) : Decision{.brings = true};
  if (!decision.status.ok() && !decision.brings) return decision;

  const bool waits = decision.status.ok() && decision.missing > 0;
  // A piece that completes a batch is not stored but makes room, so it is never refused.
  const bool completes = decision.brings && wanted != nullptr && wanted->batch->missing == 1;
  const bool held = decision.brings ? !completes : waits;
  if (Status s = CheckRoom(held ? 1 : 0, held ? request.bytes : 0, waits); !s.ok()) return {.status = s};
  decision.outlives = decision.brings || (waits && !blocked);
  return decision;
}

UnbatchGradResource::Decision UnbatchGradResource::DecideOwner(const UnbatchGradRequest& request,
                                                               bool wanted) const noexcept {
  Decision decision;
  std::optional<int64_t> clash;
  for (const IndexRow& row : request.rows) {
    if (row.key == request.id || unclaimed_.Find(row.key) != nullptr) continue;
    if (wanted_.contains(row.key)) {
      clash = row.key;
    } else {
      ++decision.missing;
    }
  }
  decision.brings = !request.lists_itself;
  if (decision.missing == 0 && !clash) {
    if (!request.repeated) return decision;  // even if another batch waits for this call's piece, as in TensorFlow
    return {.status = MakeError(Code::kInternal, kOp, ": bad bookkeeping of available tensors. [batch_index: key ",
                                *request.repeated, " is listed more than once]")};
  }
  if (open_.contains(request.id)) {
    return {.status = InvalidArgument(kOp, "Batch key with valid batch used twice. [id: ", request.id, "]")};
  }
  if (clash) {
    return {.status =
                InvalidArgument(kOp, "Missing tensor wanted by more than one batch. [batch_index: key ", *clash, "]")};
  }
  if (request.repeated) {
    return {.status = InvalidArgument(kOp, "batch_index: key ", *request.repeated, " is listed more than once")};
  }
  if (request.lists_itself && wanted) {
    return {.status = InvalidArgument(kOp, "Missing tensor wanted by more than one batch. [id: the piece of ",
                                      request.id, " went to the batch that waits for it]"),
            .brings = true};
  }
  if (Status s = CheckPresent(request, decision.fit); !s.ok()) return {.status = s};
  return decision;
}

// Checks that the pieces that are there when an owner starts to wait fit together. A type that cannot be joined is
// reported when the first piece comes, because the call that brings it gets the error too.
Status UnbatchGradResource::CheckPresent(const UnbatchGradRequest& request, PieceFit& fit) const noexcept {
  for (size_t i = 0; i < request.rows.size(); ++i) {
    const bool own = request.rows[i].key == request.id;
    const auto* entry = own ? nullptr : unclaimed_.Find(request.rows[i].key);
    if (!own && entry == nullptr) continue;
    const TensorView& piece = own ? request.grad.view : entry->piece.view;
    if (Status s = AddPiece(fit, request.grad.view.dtype, request.rows, i, piece); !s.ok()) return s;
  }
  return {};
}

}  // namespace raggrad::batching
