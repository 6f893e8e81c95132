// The state of one Batch resource. Internal to the family.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "raggrad/ops/batching/batch/batch_request.h"
#include "raggrad/ops/batching/resource.h"
#include "raggrad/ops/batching/waiting/blocked_call.h"

namespace raggrad::batching {

// A call that waits for its batch.
struct BatchTask {
  int64_t id;
  BatchRequest request;
  Completion<BatchOutput> done;
  BlockedCall<BatchOutput, std::vector<BatchTask>>* blocked;  // null: no thread waits
  int64_t ticket;
  Alarm alarm = {};
};

// A call that leaves its batch.
struct BatchEnding {
  Completion<BatchOutput> done = nullptr;
  BatchRequest request = {};
  Status why = {};
};

class BatchResource final : public WaitingResource<BatchEnding> {
 public:
  using Tasks = std::vector<BatchTask>;
  using Blocked = BlockedCall<BatchOutput, Tasks>;

  // `call` has passed CheckBatchOptions.
  BatchResource(std::shared_ptr<Environment> environment, const ResourceLimits& limits, const BatchCall& call);

  // False if the resource is closed; then `request` and `done` are untouched. `blocked`, if not null, is the thread
  // that waits for the call.
  bool Call(const BatchCall& call, BatchRequest& request, int64_t id, Completion<BatchOutput>& done,
            Blocked* blocked) noexcept;
  // Joins the tasks of a batch and completes all their calls.
  void Process(Tasks& tasks) noexcept;
  void Close() noexcept override;

 private:
  // A batch that still takes tasks. It has at least one.
  struct OpenBatch {
    std::string queue;
    Tasks tasks = {};
    int64_t rows = 0;
    int64_t deadline = 0;  // number of the timer's alarm that processes the batch even if it is not full
  };
  using OpenBatches = std::unordered_map<int64_t, OpenBatch>;

  // Called under the lock. OK: the task is in an open batch or in `filled`. A batch that it did not fit into is in
  // `displaced`.
  Status Enqueue(const BatchCall& call, BatchRequest& request, int64_t id, Completion<BatchOutput>& done,
                 Blocked* blocked, Tasks& displaced, Tasks& filled);
  // Called under the lock. If one throws, nothing has changed.
  OpenBatches::iterator StartBatch(const std::string& queue);
  void DiscardBatch(OpenBatches::iterator batch) noexcept;
  Tasks TakeBatch(OpenBatches::iterator batch) noexcept;
  void Forget(BatchTask& task) noexcept;  // disarms it and takes it out of the counts

  bool TakeWait(int64_t key, int64_t ticket, Status why, BatchEnding& ending) noexcept override;
  void Conclude(BatchEnding& ending) noexcept override;

  class BatchDeadline;
  Tasks TakeDue(int64_t serial) noexcept;  // called without the lock
  // If a thread waits for the owner's call, hands it the batch to process; then `tasks` is empty.
  static void Hand(Tasks& tasks) noexcept;
  Result<BatchOutput> JoinTasks(const Tasks& tasks) const noexcept;
  Result<BatchOutput> WithoutRows(const BatchTask& task) const noexcept;

  const int64_t max_batch_size_;
  const int64_t max_enqueued_batches_;
  const WaitTime batch_timeout_;
  const std::vector<int64_t> allowed_batch_sizes_;
  OpenBatches open_;                                 // by serial number
  std::unordered_map<std::string, int64_t> queues_;  // queue -> serial number of its open batch
  int64_t last_serial_ = 0;
};

}  // namespace raggrad::batching
