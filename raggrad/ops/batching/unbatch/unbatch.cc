#include "raggrad/ops/batching/unbatch/unbatch.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "raggrad/core/operands.h"
#include "raggrad/ops/batching/checks.h"
#include "raggrad/ops/batching/pieces/pieces.h"

namespace raggrad::batching {
namespace {

constexpr std::string_view kOp = "Unbatch";

Status CheckShapes(const UnbatchCall& call) noexcept {
  const TensorView& data = call.batched_tensor;
  const TensorView& index = call.batch_index;
  if (data.rank() == 0) return InvalidArgument(kOp, "batched_tensor: expected at least rank 1, got a scalar");
  if (index.rank() == 0) return InvalidArgument(kOp, "batch_index: expected shape [calls,3], got a scalar");
  if (index.dim(0) > data.dim(0)) {
    return InvalidArgument(kOp, "Wrong shape for index tensor. Expected 0th dimension size to be no greater than ",
                           data.dim(0), "; Got: ", index.dim(0), ".");
  }
  const int64_t columns = index.rank() == 1 ? 1 : index.dim(1);
  if (columns != 3) {
    return InvalidArgument(kOp, "Wrong shape for index tensor. Expected 1st dimension size to be 3 ; Got: ", columns,
                           ". [batch_index: got shape ", index.shape, "]");
  }
  return {};
}

// Checks how many rows each call gets. As in TensorFlow, only `end - start` counts.
Status CheckSizes(const UnbatchCall& call) noexcept {
  const TensorView& index = call.batch_index;
  const int64_t count = index.dim(0);
  const int64_t elements = index.shape.NumElements().value_or(0);
  if (elements % 3 != 0 || elements / 3 != count) {
    return InvalidArgument(kOp, "batch_index: expected shape [calls,3], got ", index.shape);
  }
  if (Status s = CheckSupported(kOp, call.batched_tensor.dtype); !s.ok()) return s;
  const int64_t* row = index.As<int64_t>();
  int64_t rows = 0;
  for (int64_t i = 0; i < count; ++i, row += 3) {
    int64_t size = 0;
    if (__builtin_sub_overflow(row[2], row[1], &size) || size < 0) {
      return InvalidArgument(kOp, "batch_index[", i, "]: expected start <= end, got ", row[1], " and ", row[2]);
    }
    if (__builtin_add_overflow(rows, size, &rows) || rows > call.batched_tensor.dim(0)) {
      return InvalidArgument(kOp, "Sum of split sizes must not exceed dim0-size of input tensor [batch_index[", i,
                             "]: expected at most ", call.batched_tensor.dim(0), " rows]");
    }
  }
  return {};
}

Status CheckDistinctKeys(const TensorView& index) {
  std::vector<int64_t> keys(static_cast<size_t>(index.dim(0)));
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = index.As<int64_t>()[3 * i];
  std::ranges::sort(keys);
  const auto twice = std::ranges::adjacent_find(keys);
  if (twice == keys.end()) return {};
  return InvalidArgument(kOp, "batch_index: key ", *twice, " is listed more than once");
}

// Cuts the batch into copies, because a stored piece must not keep the whole batch alive.
Status Cut(const Context& ctx, const UnbatchCall& call, UnbatchRequest& request) {
  const int64_t* row = call.batch_index.As<int64_t>();
  int64_t begin = 0;
  for (int64_t i = 0; i < call.batch_index.dim(0); ++i, row += 3) {
    const int64_t end = begin + (row[2] - row[1]);
    Result<Tensor> rows = CopyRows(ctx, call.batched_tensor, begin, end);
    if (!rows.ok()) return rows.status();
    if (row[0] == request.id) {
      request.own = *std::move(rows);
    } else {
      const auto bytes = static_cast<int64_t>(rows->bytes());
      request.pieces.push_back({row[0], *std::move(rows), bytes});
    }
    begin = end;
  }
  return {};
}

}  // namespace

Result<UnbatchRequest> CheckUnbatch(const Context& ctx, const UnbatchCall& call) noexcept {
  if (const int64_t micros = call.timeout_micros.value_or(0); micros != static_cast<int32_t>(micros)) {
    return InvalidArgument(kOp, "Attr timeout_micros has value ", micros, " out of range for an int32");
  }
  if (Status s = CheckInputType(kOp, 1, "batch_index", DType::kInt64, call.batch_index.dtype); !s.ok()) return s;
  if (Status s = CheckInputType(kOp, 2, "id", DType::kInt64, call.id.dtype); !s.ok()) return s;
  if (Status s = CheckOperands(
          kOp, {{"batched_tensor", call.batched_tensor}, {"batch_index", call.batch_index}, {"id", call.id}});
      !s.ok()) {
    return s;
  }
  if (!call.id.device.is_cpu()) return NoKernelForDevice(kOp, call.id.device);
  if (Status s = CheckStringData(kOp, "batched_tensor", call.batched_tensor); !s.ok()) return s;
  if (Status s = CheckShapes(call); !s.ok()) return s;
  const Result<int64_t> id = ReadId(kOp, call.id, "Input id should be scalar; Got: ", ".");
  if (!id.ok()) return id.status();
  try {
    UnbatchRequest request{.id = *id, .dtype = call.batched_tensor.dtype, .waiting = call.waiting};
    if (call.batch_index.dim(0) > 0) {
      if (Status s = CheckSizes(call); !s.ok()) return s;
      if (Status s = CheckDistinctKeys(call.batch_index); !s.ok()) return s;
      if (Status s = Cut(ctx, call, request); !s.ok()) return s;
    }
    return request;
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "Unbatch: no memory for the call");
  }
}

bool UnbatchResource::Call(UnbatchRequest& request, Completion<Tensor>& done, bool blocked) noexcept {
  std::optional<Result<Tensor>> mine;
  UnbatchPieces::Entries awaited;
  std::vector<Waiter> receivers;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    ++counters_.calls;
    try {
      mine = Arrive(request, done, blocked, awaited, receivers);
    } catch (const std::exception&) {  // std::bad_alloc, or std::system_error: no thread for the timer
      mine = NoMemory();
    }
  }
  request.own.reset();
  request.pieces.clear();
  if (receivers.empty()) awaited.clear();
  size_t next = 0;
  const auto rest = [&] {
    while (next < receivers.size()) {
      Waiter& receiver = receivers[next++];
      Result<Tensor> piece = std::move(awaited.front().piece);
      awaited.pop_front();
      Deliver(receiver.done, receiver.dtype, piece);
    }
    if (std::optional<Result<Tensor>> last = std::exchange(mine, std::nullopt)) Deliver(done, request.dtype, *last);
  };
  const Turn turn(environment_->cancellers, rest);
  rest();
  return true;
}

void UnbatchResource::Deliver(Completion<Tensor>& done, DType expected, Result<Tensor>& rows) noexcept {
  if (rows.ok()) {
    if (Status s = CheckExpectedType(kOp, expected, rows->dtype()); !s.ok()) rows = std::move(s);
  }
  Finish<Tensor>(std::move(done), std::move(rows));
}

std::optional<Result<Tensor>> UnbatchResource::Arrive(UnbatchRequest& request, Completion<Tensor>& done, bool blocked,
                                                      UnbatchPieces::Entries& awaited, std::vector<Waiter>& receivers) {
  if (stored_.Find(request.id) != nullptr) {  // then TensorFlow ignores what the call brings itself
    auto taken = stored_.Take(request.id);
    CountOut(taken.front().bytes);
    return std::move(taken.front().piece);
  }
  if (waiting_.contains(request.id)) {
    return MakeError(Code::kAlreadyExists, kOp, ": Multiple session runs with the same batch key. [id: ", request.id,
                     "]");
  }
  for (auto next = request.pieces.begin(); next != request.pieces.end();) {
    const auto piece = next++;
    if (stored_.Find(piece->key) != nullptr) {
      return MakeError(Code::kAlreadyExists, kOp, ": Multiple tensors returned for same batch key. [batch_index: key ",
                       piece->key, "]");
    }
    if (waiting_.contains(piece->key)) awaited.splice(awaited.end(), request.pieces, piece);
  }
  if (Status s = CheckRoomFor(request); !s.ok()) return s;
  receivers.reserve(awaited.size());
  auto me = waiting_.end();
  if (!request.own) {
    me = StartWaiting(request);
    if (me == waiting_.end()) return Cancelled();
  }
  try {
    Store(request.pieces);
  } catch (...) {
    if (me != waiting_.end()) TakeWaiter(me);
    throw;
  }
  // From here on nothing fails.
  for (const auto& piece : awaited) receivers.push_back(TakeWaiter(waiting_.find(piece.key)));
  if (request.own) return *std::move(request.own);
  me->second.done = std::move(done);
  me->second.blocked = blocked;
  return std::nullopt;
}

void UnbatchResource::Store(UnbatchPieces::Entries& pieces) {
  if (pieces.empty()) return;
  int64_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.bytes;
  const auto count = static_cast<int64_t>(pieces.size());
  WatchAges(stored_);
  stored_.Store(pieces);
  pieces_ += count;
  bytes_ += bytes;
}

Status UnbatchResource::CheckRoomFor(const UnbatchRequest& request) const noexcept {
  int64_t bytes = 0;
  for (const auto& piece : request.pieces) bytes += piece.bytes;
  return CheckRoom(static_cast<int64_t>(request.pieces.size()), bytes, /*waits=*/!request.own);
}

UnbatchResource::Waiters::iterator UnbatchResource::StartWaiting(const UnbatchRequest& request) {
  const auto position = waiting_.try_emplace(request.id).first;
  Waiter& waiter = position->second;
  waiter.dtype = request.dtype;
  waiter.ticket = ++last_ticket_;
  try {
    if (Arm(waiter.alarm, request.waiting, request.id, waiter.ticket)) {
      ++waiters_;
      return position;
    }
  } catch (...) {
    waiting_.erase(position);
    throw;
  }
  waiting_.erase(position);
  return waiting_.end();
}

UnbatchResource::Waiter UnbatchResource::TakeWaiter(Waiters::iterator position) noexcept {
  Disarm(position->second.alarm);
  Waiter waiter = std::move(position->second);
  waiting_.erase(position);
  --waiters_;
  return waiter;
}

bool UnbatchResource::TakeWait(int64_t key, int64_t ticket, Status why, UnbatchEnding& ending) noexcept {
  bool blocked = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = waiting_.find(key);
    if (found == waiting_.end() || found->second.ticket != ticket) return false;
    Waiter waiter = TakeWaiter(found);
    blocked = waiter.blocked;
    ending = {std::move(waiter.done), std::move(why)};
  }
  if (blocked) Conclude(ending);
  return !blocked;
}

void UnbatchResource::Conclude(UnbatchEnding& ending) noexcept {
  Finish<Tensor>(std::move(ending.done), std::move(ending.why));
}

void UnbatchResource::Close() noexcept {
  UnbatchPieces::Entries stored;
  Waiters waiting;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    environment_->timer.Cancel(std::exchange(age_alarm_, 0));
    for (auto& [key, waiter] : waiting_) Disarm(waiter.alarm);
    stored = stored_.TakeAll();
    waiting.swap(waiting_);
    counters_.pieces_dropped += std::exchange(pieces_, 0);
    bytes_ = waiters_ = 0;
  }
  stored.clear();
  const auto rest = [&] {
    while (!waiting.empty()) {
      auto next = waiting.extract(waiting.begin());
      Finish<Tensor>(std::move(next.mapped().done), Closed());
    }
  };
  const Turn turn(environment_->cancellers, rest);
  rest();
}

}  // namespace raggrad::batching
