#include "raggrad/ops/batching/batch/batch.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "raggrad/ops/batching/checks.h"
#include "raggrad/ops/batching/pieces/pieces.h"

namespace raggrad::batching {
namespace {

constexpr std::string_view kOp = "Batch";

Result<Tensor> Scalar(const Context& ctx, int output, int64_t value) noexcept {
  Result<Tensor> scalar = AllocateOutput(ctx, output, DType::kInt64, Shape{});
  if (scalar.ok()) *scalar->As<int64_t>() = value;
  return scalar;
}

// Makes room for one more task, so that push_back cannot throw.
void Grow(std::vector<BatchTask>& tasks) {
  if (tasks.size() == tasks.capacity()) tasks.reserve(std::max<size_t>(4, 2 * tasks.size()));
}

}  // namespace

// Processes a batch that is not full, on the thread of its blocked owner or on a helper.
class BatchResource::BatchDeadline final : public TimerAlarm {
 public:
  BatchDeadline(std::weak_ptr<Resource> resource, int64_t serial) noexcept
      : weak_(std::move(resource)), serial_(serial) {}

  bool Decide() noexcept override {
    resource_ = std::static_pointer_cast<BatchResource>(weak_.lock());
    if (resource_) tasks_ = resource_->TakeDue(serial_);
    Hand(tasks_);
    return !tasks_.empty();
  }
  void CarryOut() noexcept override { resource_->Process(tasks_); }

 private:
  const std::weak_ptr<Resource> weak_;
  const int64_t serial_;
  std::shared_ptr<BatchResource> resource_;
  Tasks tasks_;
};

BatchResource::BatchResource(std::shared_ptr<Environment> environment, const ResourceLimits& limits,
                             const BatchCall& call)
    : WaitingResource(std::move(environment), kOp, limits),
      max_batch_size_(call.max_batch_size < 0 ? INT64_MAX : call.max_batch_size),
      max_enqueued_batches_(call.max_enqueued_batches < 0 ? INT64_MAX
                                                          : std::max<int64_t>(call.max_enqueued_batches, 1)),
      batch_timeout_(call.batch_timeout_micros),
      allowed_batch_sizes_(call.allowed_batch_sizes) {}

bool BatchResource::Call(const BatchCall& call, BatchRequest& request, int64_t id, Completion<BatchOutput>& done,
                         Blocked* blocked) noexcept {
  Tasks displaced, filled;
  Status status;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    ++counters_.calls;
    try {
      status = Enqueue(call, request, id, done, blocked, displaced, filled);
    } catch (const std::exception&) {  // std::bad_alloc, or std::system_error: no thread for the timer
      status = NoMemory();
    }
  }
  request.tensors.clear();
  Hand(displaced);
  const auto rest = [&] {
    Process(displaced);
    Process(filled);  // this call is its owner
    if (!status.ok()) Finish<BatchOutput>(std::move(done), std::exchange(status, {}));
  };
  const Turn turn(environment_->cancellers, rest);
  rest();
  return true;
}

Status BatchResource::Enqueue(const BatchCall& call, BatchRequest& request, int64_t id, Completion<BatchOutput>& done,
                              Blocked* blocked, Tasks& displaced, Tasks& filled) {
  if (request.rows > max_batch_size_) {
    return InvalidArgument(kOp, "Task size ", request.rows, " is larger than maximum input batch size ",
                           max_batch_size_);
  }
  const auto queue = queues_.find(call.batching_queue);
  const int64_t current = queue == queues_.end() ? 0 : queue->second;
  const int64_t rows_before = current == 0 ? 0 : open_.find(current)->second.rows;
  const bool joins = current != 0 && rows_before <= max_batch_size_ - request.rows;
  if (current != 0 && !joins && max_enqueued_batches_ <= 1) {
    return MakeError(Code::kUnavailable, kOp,
                     ": The batch scheduling queue to which this task was submitted is full; currently 1 batches "
                     "enqueued and max_enqueued_batches is ",
                     max_enqueued_batches_);
  }
  const bool fills = (joins ? rows_before : 0) + request.rows == max_batch_size_;  // then the task is not stored
  if (Status s = CheckRoom(fills ? 0 : 1, fills ? 0 : request.bytes, !fills); !s.ok()) return s;

  const auto position = joins ? open_.find(current) : StartBatch(call.batching_queue);
  const auto& [serial, batch] = *position;
  Waiting waiting = call.waiting;
  if (!waiting.timeout) waiting.timeout = kNoDeadline;  // the batch's own deadline ends the wait
  Alarm alarm;
  bool armed = false;
  try {
    Grow(position->second.tasks);
    armed = Arm(alarm, waiting, serial, ++last_ticket_);
  } catch (...) {
    if (!joins) DiscardBatch(position);
    throw;
  }
  if (!armed) {
    if (!joins) DiscardBatch(position);
    return Cancelled();
  }
  // From here on nothing fails.
  queues_.find(batch.queue)->second = serial;
  if (current != 0 && !joins) displaced = TakeBatch(open_.find(current));
  CountIn(request.bytes);
  ++waiters_;
  position->second.rows += request.rows;
  position->second.tasks.push_back({id, std::move(request), std::move(done), blocked, last_ticket_, std::move(alarm)});
  if (fills) filled = TakeBatch(position);
  return {};
}

BatchResource::OpenBatches::iterator BatchResource::StartBatch(const std::string& queue) {
  const int64_t serial = ++last_serial_;
  const auto position = open_.try_emplace(serial, OpenBatch{queue}).first;
  try {
    queues_.try_emplace(queue, serial);
    position->second.deadline = environment_->timer.Set(Clock::now() + batch_timeout_,
                                                        std::make_unique<BatchDeadline>(weak_from_this(), serial));
  } catch (...) {
    DiscardBatch(position);
    throw;
  }
  return position;
}

void BatchResource::DiscardBatch(OpenBatches::iterator position) noexcept {
  environment_->timer.Cancel(position->second.deadline);
  const auto queue = queues_.find(position->second.queue);
  if (queue != queues_.end() && queue->second == position->first) queues_.erase(queue);
  open_.erase(position);
}

BatchResource::Tasks BatchResource::TakeBatch(OpenBatches::iterator position) noexcept {
  Tasks tasks = std::move(position->second.tasks);
  for (BatchTask& task : tasks) Forget(task);
  DiscardBatch(position);
  return tasks;
}

void BatchResource::Forget(BatchTask& task) noexcept {
  Disarm(task.alarm);
  CountOut(task.request.bytes);
  --waiters_;
}

BatchResource::Tasks BatchResource::TakeDue(int64_t serial) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(serial);
  return found == open_.end() ? Tasks() : TakeBatch(found);
}

// Takes the call out of its batch, which goes on without it.
bool BatchResource::TakeWait(int64_t serial, int64_t ticket, Status why, BatchEnding& ending) noexcept {
  bool blocked = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(serial);
    if (found == open_.end()) return false;
    OpenBatch& batch = found->second;
    const auto task = std::ranges::find(batch.tasks, ticket, &BatchTask::ticket);
    if (task == batch.tasks.end()) return false;
    Forget(*task);
    batch.rows -= task->request.rows;
    blocked = task->blocked != nullptr;
    ending = {std::move(task->done), std::move(task->request), std::move(why)};
    batch.tasks.erase(task);
    if (batch.tasks.empty()) DiscardBatch(found);
  }
  if (blocked) Conclude(ending);  // drops no operands: the blocked thread keeps them
  return !blocked;
}

void BatchResource::Conclude(BatchEnding& ending) noexcept {
  ending.request.tensors.clear();
  Finish<BatchOutput>(std::move(ending.done), std::move(ending.why));
}

void BatchResource::Close() noexcept {
  OpenBatches open;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    counters_.pieces_dropped += pieces_;
    for (auto& [serial, batch] : open_) {
      environment_->timer.Cancel(batch.deadline);
      for (BatchTask& task : batch.tasks) Forget(task);
    }
    open.swap(open_);
    queues_.clear();
  }
  for (auto& [serial, batch] : open) {
    for (BatchTask& task : batch.tasks) task.request.tensors.clear();
    std::ranges::reverse(batch.tasks);  // so that completing from the back follows the order of the calls
  }
  const auto rest = [&] {
    for (auto& [serial, batch] : open) {
      while (!batch.tasks.empty()) {
        Completion<BatchOutput> done = std::move(batch.tasks.back().done);
        batch.tasks.pop_back();
        Finish<BatchOutput>(std::move(done), Closed());
      }
    }
  };
  const Turn turn(environment_->cancellers, rest);
  rest();
}

void BatchResource::Hand(Tasks& tasks) noexcept {
  if (tasks.empty() || tasks.back().blocked == nullptr) return;
  tasks.back().blocked->Hand(std::exchange(tasks, {}));
}

// The last task is the owner's. An error goes to all calls of the batch, because no other result will come for them.
void BatchResource::Process(Tasks& given) noexcept {
  if (given.empty()) return;
  Tasks tasks = std::exchange(given, {});
  Result<BatchOutput> joined = JoinTasks(tasks);
  for (BatchTask& task : tasks) {  // only types and shapes are needed from here on
    for (SharedView& tensor : task.request.tensors) tensor.keep_alive = nullptr;
  }
  const Status status = joined.status();
  size_t next = 0;
  const auto rest = [&] {
    while (next < tasks.size()) {
      BatchTask& task = tasks[next++];
      const bool owner = next == tasks.size();
      Finish<BatchOutput>(std::move(task.done), !status.ok() ? Result<BatchOutput>(status)
                                                : owner      ? std::move(joined)  // NOLINT: the owner is the last
                                                             : WithoutRows(task));
    }
  };
  const Turn turn(environment_->cancellers, rest);
  rest();
}

Result<BatchOutput> BatchResource::JoinTasks(const Tasks& tasks) const noexcept {
  const Context& ctx = environment_->ctx;
  int64_t rows = 0;
  for (const BatchTask& task : tasks) {
    rows += task.request.rows;
    if (task.request.tensors.size() != tasks[0].request.tensors.size()) {
      return InvalidArgument(kOp, "Batching inputs must have equal number of edges [expected ",
                             tasks[0].request.tensors.size(), " tensors, got ", task.request.tensors.size(), "]");
    }
  }
  const auto allowed = std::ranges::lower_bound(allowed_batch_sizes_, rows);
  const int64_t padding = allowed == allowed_batch_sizes_.end() ? 0 : *allowed - rows;
  try {
    std::vector<Tensor> joined;
    for (size_t t = 0; t < tasks[0].request.tensors.size(); ++t) {
      const int64_t pieces = std::ssize(tasks) + (padding > 0 ? 1 : 0);
      Result<PieceList> list = PieceList::Make(tasks[0].request.tensors[t].view, pieces);
      if (!list.ok()) return list.status();
      PieceFit fit;
      for (size_t i = 0; i < tasks.size(); ++i) {
        const TensorView& piece = tasks[i].request.tensors[t].view;
        if (Status s = fit.Add(kOp, static_cast<int64_t>(i), piece); !s.ok()) return s;
        list->Add(piece);
      }
      if (padding > 0) list->AddPadding(padding);
      Result<Tensor> tensor = Join(ctx, static_cast<int>(t), *list);
      if (!tensor.ok()) return tensor.status();
      joined.push_back(*std::move(tensor));
    }
    const int outputs = static_cast<int>(joined.size());
    Result<Tensor> index = AllocateOutput(ctx, outputs, DType::kInt64, Shape{static_cast<int64_t>(tasks.size()), 3});
    if (index.ok()) {
      int64_t* entry = index->As<int64_t>();
      int64_t begin = 0;
      for (const BatchTask& task : tasks) {
        *entry++ = task.id;
        *entry++ = begin;
        *entry++ = begin += task.request.rows;
      }
    }
    return AssembleOutput(std::move(joined), std::move(index), Scalar(ctx, outputs + 1, tasks.back().id));
  } catch (const std::bad_alloc&) {
    return NoMemory();
  }
}

Result<BatchOutput> BatchResource::WithoutRows(const BatchTask& task) const noexcept {
  const Context& ctx = environment_->ctx;
  try {
    std::vector<Tensor> tensors;
    for (const SharedView& tensor : task.request.tensors) {
      Result<Tensor> empty = NoRows(ctx, static_cast<int>(tensors.size()), tensor.view);
      if (!empty.ok()) return empty.status();
      tensors.push_back(*std::move(empty));
    }
    const int outputs = static_cast<int>(tensors.size());
    return AssembleOutput(std::move(tensors), AllocateOutput(ctx, outputs, DType::kInt64, Shape{0, 3}),
                          Scalar(ctx, outputs + 1, task.id));
  } catch (const std::bad_alloc&) {
    return NoMemory();
  }
}

}  // namespace raggrad::batching
