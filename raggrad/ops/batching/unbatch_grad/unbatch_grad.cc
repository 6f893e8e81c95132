#include "raggrad/ops/batching/unbatch_grad/unbatch_grad.h"

#include <exception>
#include <utility>

#include "raggrad/ops/batching/pieces/pieces.h"

namespace raggrad::batching {
namespace {

constexpr std::string_view kOp = "UnbatchGrad";

// Checks that a piece fits the others and has the type of its owner's call. In a strict call it must also have as many
// rows as the index says.
Status AddPiece(PieceFit& fit, DType expected, const std::vector<IndexRow>& rows, size_t row,
                const TensorView& piece) noexcept {
  if (Status s = fit.Add(kOp, static_cast<int64_t>(row), piece); !s.ok()) return s;
  if (Status s = CheckExpectedType(kOp, expected, piece.dtype); !s.ok()) return s;
  if (rows[row].rows.value_or(piece.dim(0)) == piece.dim(0)) return {};
  return InvalidArgument(kOp, "batch_index[", row, "]: the range has ", *rows[row].rows, " rows, the piece of key ",
                         rows[row].key, " has ", piece.dim(0));
}

}  // namespace

bool UnbatchGradResource::Call(UnbatchGradRequest& request, Completion<Tensor>& done, Blocked* blocked) noexcept {
  UnbatchGradEnding mine, other;
  std::unique_lock lock(mutex_);
  if (closed_) return false;
  ++counters_.calls;
  try {
    Decision decision = Decide(request, blocked != nullptr);
    if (decision.outlives && NeedsCopy(request.grad)) {
      lock.unlock();  // other calls go on during the copy
      Result<SharedView> kept = Keep(environment_->ctx, request.grad);
      lock.lock();
      if (closed_) return false;
      if (kept.ok()) {
        request.grad = *std::move(kept);
        decision = Decide(request, blocked != nullptr);
      } else {
        decision = {.status = kept.status()};
      }
    }
    CarryOut(decision, request, done, blocked, mine, other);
  } catch (const std::exception&) {  // std::bad_alloc, or std::system_error: no thread for the timer
    mine.done = std::move(done);
    mine.status = NoMemory();
  }
  lock.unlock();
  request.grad = {};
  Hand(other);
  const auto rest = [&] {
    Conclude(other);
    Conclude(mine);
  };
  const Turn turn(environment_->cancellers, rest);
  rest();
  return true;
}

bool UnbatchGradResource::Hand(UnbatchGradEnding& ending) noexcept {
  Blocked* const waiting = std::exchange(ending.blocked, nullptr);
  if (waiting == nullptr) return false;
  waiting->Hand(std::exchange(ending, {}));
  return true;
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

void UnbatchGradResource::CarryOut(const Decision& decision, const UnbatchGradRequest& request,
                                   Completion<Tensor>& done, Blocked* blocked, UnbatchGradEnding& mine,
                                   UnbatchGradEnding& other) {
  mine.status = decision.status;
  const bool waits = mine.status.ok() && decision.missing > 0;
  const auto found = decision.brings ? wanted_.find(request.id) : wanted_.end();
  Wanted* const wanted = found == wanted_.end() ? nullptr : &found->second;
  const bool stores = decision.brings && wanted == nullptr;
  if (!waits) mine.pieces.reserve(request.rows.size());
  if (stores) StoreUnclaimed(request);
  if (waits) {
    try {
      mine.status = StartWaiting(decision, request, done, blocked);
    } catch (...) {
      if (stores) TakeUnclaimed(request.id);
      throw;
    }
    if (!mine.status.ok()) {
      if (stores) TakeUnclaimed(request.id);
      mine.done = std::move(done);
      return;
    }
  }
  // From here on nothing fails.
  const Status served = wanted == nullptr ? Status() : Serve(*wanted, request, other);
  if (waits) return;
  mine.done = std::move(done);
  mine.stream = request.stream;
  if (!mine.status.ok()) return;
  if (request.owner) {
    mine.status = Collect(request, mine.pieces);
  } else {
    mine.status = served;
    mine.no_rows = request.grad.view;
  }
}

Status UnbatchGradResource::StartWaiting(const Decision& decision, const UnbatchGradRequest& request,
                                         Completion<Tensor>& done, Blocked* blocked) {
  const auto position = open_.try_emplace(request.id).first;
  Batch& batch = position->second;
  bool armed = false;
  try {
    batch.rows = request.rows;
    batch.pieces.resize(batch.rows.size());
    for (size_t i = 0; i < batch.rows.size(); ++i) wanted_.emplace(batch.rows[i].key, Wanted{&batch, i, false});
    batch.ticket = ++last_ticket_;
    armed = Arm(batch.alarm, request.waiting, request.id, batch.ticket);
  } catch (...) {
    Unregister(position);
    throw;
  }
  if (!armed) {
    Unregister(position);
    return Cancelled();
  }
  batch.id = request.id;
  batch.dtype = request.grad.view.dtype;
  batch.stream = request.stream;
  batch.missing = batch.rows.size();
  batch.fit = decision.fit;
  batch.done = std::move(done);
  batch.blocked = blocked;
  for (const IndexRow& row : batch.rows) {
    Wanted& wanted = wanted_.find(row.key)->second;
    if (row.key == request.id) {
      Put(wanted, request.grad, request.bytes);
    } else if (unclaimed_.Find(row.key) != nullptr) {
      auto entry = TakeUnclaimed(row.key);
      Put(wanted, std::move(entry.piece), entry.bytes);
    }
  }
  ++waiters_;
  return {};
}

void UnbatchGradResource::StoreUnclaimed(const UnbatchGradRequest& request) {
  AgedPieces<SharedView>::Entries entry;
  entry.push_back({request.id, request.grad, request.bytes});
  WatchAges(unclaimed_);
  unclaimed_.Store(entry);
  CountIn(request.bytes);
}

// Takes the pieces of the rows out of the table, in order. If they do not fit together, they are dropped.
Status UnbatchGradResource::Collect(const UnbatchGradRequest& request, std::vector<SharedView>& pieces) noexcept {
  for (const IndexRow& row : request.rows) {
    pieces.push_back(row.key == request.id ? request.grad : TakeUnclaimed(row.key).piece);
  }
  Status status = CheckSupported(kOp, pieces[0].view.dtype);
  PieceFit fit;
  for (size_t i = 0; status.ok() && i < pieces.size(); ++i) {
    status = AddPiece(fit, request.grad.view.dtype, request.rows, i, pieces[i].view);
  }
  if (!status.ok()) counters_.pieces_dropped += static_cast<int64_t>(pieces.size());
  return status;
}

// Gives the piece to the batch that waits for it; a piece that does not fit ends that batch. Returns the error that the
// call which brought the piece gets, too.
Status UnbatchGradResource::Serve(Wanted& wanted, const UnbatchGradRequest& request,
                                  UnbatchGradEnding& other) noexcept {
  Batch& batch = *wanted.batch;
  const TensorView& piece = request.grad.view;
  Status supported = CheckSupported(kOp, piece.dtype);
  Status fits = supported.ok() ? AddPiece(batch.fit, batch.dtype, batch.rows, wanted.row, piece) : supported;
  if (fits.ok()) {
    Put(wanted, request.grad, request.bytes);
  } else {
    ++counters_.pieces_dropped;
  }
  if (!fits.ok() || batch.missing == 0) End(open_.find(batch.id), std::move(fits), other);
  return supported;
}

void UnbatchGradResource::Put(Wanted& wanted, SharedView piece, int64_t bytes) noexcept {
  wanted.arrived = true;
  wanted.batch->pieces[wanted.row] = std::move(piece);
  wanted.batch->bytes += bytes;
  --wanted.batch->missing;
  CountIn(bytes);
}

AgedPieces<SharedView>::Entry UnbatchGradResource::TakeUnclaimed(int64_t key) noexcept {
  auto taken = unclaimed_.Take(key);
  CountOut(taken.front().bytes);
  return std::move(taken.front());
}

void UnbatchGradResource::Unregister(Batches::iterator position) noexcept {
  const Batch& batch = position->second;
  for (const IndexRow& row : batch.rows) {
    const auto found = wanted_.find(row.key);
    if (found != wanted_.end() && found->second.batch == &batch) wanted_.erase(found);
  }
  open_.erase(position);
}

// Ends the batch: moves its pieces into the ending and frees its keys.
void UnbatchGradResource::End(Batches::iterator position, Status status, UnbatchGradEnding& ending) noexcept {
  Batch& batch = position->second;
  Disarm(batch.alarm);
  const auto arrived = static_cast<int64_t>(batch.rows.size() - batch.missing);
  pieces_ -= arrived;
  bytes_ -= batch.bytes;
  --waiters_;
  if (!status.ok()) counters_.pieces_dropped += arrived;
  ending = {std::move(batch.done), batch.blocked, std::move(status), std::move(batch.pieces), batch.stream, {}};
  Unregister(position);
}

bool UnbatchGradResource::TakeWait(int64_t key, int64_t ticket, Status why, UnbatchGradEnding& ending) noexcept {
  {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(key);
    if (found == open_.end() || found->second.ticket != ticket) return false;
    End(found, std::move(why), ending);
  }
  return !Hand(ending);
}

void UnbatchGradResource::Close() noexcept {
  AgedPieces<SharedView>::Entries unclaimed;
  Batches open;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    environment_->timer.Cancel(std::exchange(age_alarm_, 0));
    for (auto& [id, batch] : open_) Disarm(batch.alarm);
    unclaimed = unclaimed_.TakeAll();
    open.swap(open_);
    wanted_.clear();
    counters_.pieces_dropped += std::exchange(pieces_, 0);
    bytes_ = waiters_ = 0;
  }
  unclaimed.clear();
  for (auto& [id, batch] : open) batch.pieces.clear();
  const auto rest = [&] {
    while (!open.empty()) {
      auto next = open.extract(open.begin());
      Finish<Tensor>(std::move(next.mapped().done), Closed());
    }
  };
  const Turn turn(environment_->cancellers, rest);
  rest();
}

void UnbatchGradResource::Conclude(UnbatchGradEnding& ending) noexcept {
  Completion<Tensor> done = std::exchange(ending.done, nullptr);
  if (!done) return;
  Context ctx = environment_->ctx;
  ctx.stream = ending.stream;
  Result<Tensor> result = !ending.status.ok() ? Result<Tensor>(ending.status)
                          : ending.no_rows    ? NoRows(ctx, 0, *ending.no_rows)
                                              : JoinShared(ctx, kOp, ending.pieces);
  ending.pieces.clear();
  Finish<Tensor>(std::move(done), std::move(result));
}

}  // namespace raggrad::batching
