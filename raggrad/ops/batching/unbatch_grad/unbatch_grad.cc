#include "raggrad/ops/batching/unbatch_grad/unbatch_grad.h"

#include <exception>
#include <utility>

#include "raggrad/ops/batching/pieces/pieces.h"

namespace raggrad::batching {
namespace {

constexpr std::string_view kOp = "UnbatchGrad";

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
