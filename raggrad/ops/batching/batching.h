// Batch, Unbatch and UnbatchGrad: calls of several threads that meet in a named resource.
//
//   Batch        gathers the rows of concurrent calls. The last call of a batch is its owner and gets all rows and a
//                table of who brought which; the others get tensors without rows. Every call gets its own id.
//   Unbatch      the way back: the owner brings the processed batch, every call leaves with its own rows.
//   UnbatchGrad  the gradient of Unbatch: every call brings the gradient of its rows, the owner leaves with all of them
//                joined in the order of batch_index, the others leave without rows.
//
//   BatchingRuntime runtime;
//   Result<Tensor> joined = runtime.UnbatchGrad({.resource = {"", "head"}, .original_input = x, .batch_index = index,
//                                                .grad = {g}, .id = TensorView::Scalar(id)});
//
// Results, ids, names of resources and error codes are TensorFlow's; README.md beside this file lists where TensorFlow
// hangs, leaks or crashes and what happens here instead. In short: what can be checked is checked before anything is
// stored; an error of a batch goes to its owner, once; a failed call leaves no trace; every wait has a deadline, can be
// cancelled, and ends with CANCELLED when its resource is closed; copies and callbacks run outside the lock.
//
// Threads: none per resource. One thread per runtime watches the clock, started by the first call that waits or piece
// that is stored, asleep until the next deadline. It never runs code of yours, so that deadlines are kept whatever a
// callback does. A blocking call joins its batch itself and always ends by its deadline.
//
// Callbacks run on the thread that ends the call, before its function returns: the one that brings the last piece, that
// cancels or that closes; never under a lock. A call that ends by a deadline, or a Batch that is due, completes on a
// helper thread. Helpers start when they are needed: one, and for every callback that does not return within 2 ms
// another one, up to 64. When all of these wait in callbacks, further ones have to wait for them. A thread start costs
// some 30 us; without expired deadlines there is no helper. Callbacks of a batch come in the order of its calls, the
// owner's last; between batches there is no order.
//
// A callback must not throw. It may sleep, call the runtime again, cancel, close, and destroy the runtime. While it
// runs, the function that called it does not return: whoever brings a last piece waits for the owner's callback. The
// destruction of a keep-alive and the context's allocator run on the same threads; they may call the runtime, too, but
// not destroy it.
//
// Memory: tensors come from the runtime's allocator, which may be asked from any of these threads, never under a lock.
// A joined gradient is written once, straight into the tensor that is handed out. An operand is copied before that only
// if it outlives its call without a keep-alive. UnbatchGrad's results and copies in device memory come from the same
// allocator as those in host memory: a runtime that gets both needs the default one, which alone can tell them apart.
//
// fork(): in a child every call gives UNAVAILABLE, and the runtime's memory is not given back.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "raggrad/core/context.h"
#include "raggrad/core/result.h"
#include "raggrad/core/tensor.h"
#include "raggrad/core/tensor_view.h"
#include "raggrad/ops/batching/cancellation.h"

#pragma GCC visibility push(default)
namespace raggrad {

// A tensor that may be needed after the call that brought it has returned. If `keep_alive` is set, the data stays
// valid as long as it is held; otherwise the library copies what it has to keep.
struct SharedView {
  TensorView view;
  std::shared_ptr<const void> keep_alive = nullptr;
};

// State lives under (kind of operator, container, name). Both are taken literally; an empty name stands for the
// operator's own ("UnbatchGrad").
struct ResourceName {
  std::string container = {};
  std::string name = {};
};

using WaitTime = std::chrono::microseconds;
inline constexpr WaitTime kNoDeadline = WaitTime::max();

// How the thread of a blocking call sleeps. For hosts whose threads have more to listen to than the result: signals, or
// other fibers of the same thread.
class Sleeper {
 public:
  virtual ~Sleeper() = default;

  // Returns when Wake has been called. Called at most once per call, by its thread, without a lock.
  virtual void Sleep() noexcept = 0;
  // Called by any thread, Sleep's own included, once per Sleep and perhaps before it. Must neither block nor call the
  // runtime.
  virtual void Wake() noexcept = 0;
};

struct Waiting {
  std::optional<WaitTime> timeout = {};           // unset: the resource's; kNoDeadline: none
  std::optional<Cancellation> cancellation = {};  // ends the wait early
  Sleeper* sleeper = nullptr;                     // of a blocking call; null: the thread just sleeps
};

struct UnbatchGradCall {
  ResourceName resource;
  TensorView original_input;  // the call is an owner if this has elements; they are not read
  TensorView batch_index;     // int64 [calls, 3]: key, first row, end; of an owner only the keys are looked at
  SharedView grad;            // at least rank 1
  TensorView id;              // int64 []
  Waiting waiting = {};
  // Refuses what TensorFlow accepts although it is most likely a mistake: an owner that is not in its own index, ranges
  // that are not contiguous or do not agree with the pieces, an index that is not [calls, 3] ([0, 3] for others than
  // owners), an original_input that has rows but no elements.
  bool strict = false;
  // A cudaStream_t, if grad is in device memory (cuda/cuda.h): what makes grad has been queued there, and an owner's
  // result is made there. Must live until the piece has been joined or dropped, be the same in every thread (not
  // cudaStreamPerThread) and not be captured: INVALID_ARGUMENT otherwise.
  void* stream = nullptr;
};

struct UnbatchCall {
  ResourceName resource;
  TensorView batched_tensor;  // owner: the batch; others: no rows
  TensorView batch_index;     // int64 [calls, 3]
  TensorView id;              // int64 []
  // Of the resource, if this call makes it: for waiting calls and stored pieces. Unset: the runtime's limits.
  std::optional<int64_t> timeout_micros = {};
  Waiting waiting = {};
};

struct BatchCall {
  ResourceName resource;
  std::vector<SharedView> in_tensors;
  // Taken from the call that makes the resource. batching_queue chooses a queue within it.
  int64_t num_batch_threads = 1;  // checked, but no thread is started: the last caller or a helper does the work
  int64_t max_batch_size = 0;     // negative: no limit
  int64_t batch_timeout_micros = 0;
  int64_t max_enqueued_batches = 10;
  std::vector<int64_t> allowed_batch_sizes = {};
  std::string batching_queue = {};
  Waiting waiting = {};
};

struct BatchOutput {
  std::vector<Tensor> batched_tensors;
  Tensor batch_index;  // int64 [calls, 3] for the owner, [0, 3] for the others
  Tensor id;           // int64 []; all outputs have shape [0] if the inputs have no rows, as in TensorFlow
};

// What one resource may hold. A call that would pass a limit gets RESOURCE_EXHAUSTED; one that completes a batch makes
// room and is never refused. An Unbatch resource has its timeout_micros for both times, and a Batch ends by its
// batch_timeout_micros, unless SetLimits or the call says otherwise.
struct ResourceLimits {
  int64_t max_pieces = 1 << 20;                         // stored and not yet collected
  int64_t max_bytes = INT64_MAX;                        // in those pieces
  int64_t max_waiters = 1 << 16;                        // calls that wait
  WaitTime max_piece_age = std::chrono::minutes(10);    // older unclaimed pieces are dropped
  WaitTime default_timeout = std::chrono::minutes(10);  // of a wait that says none
};

enum class ResourceKind { kBatch, kUnbatch, kUnbatchGrad };

// Counters since the resource was made, and what it holds now. When no call is under way or waits, calls = succeeded +
// failed. A call whose operands are refused before it reaches the resource is not counted.
struct ResourceStatistics {
  int64_t calls = 0;
  int64_t succeeded = 0;
  int64_t failed = 0;     // with any error, cancelled and expired ones included
  int64_t cancelled = 0;  // by a token or by closing
  int64_t deadline_exceeded = 0;
  int64_t refused = 0;  // RESOURCE_EXHAUSTED or UNAVAILABLE: a limit, or no memory
  int64_t pieces_expired = 0;
  int64_t pieces_dropped = 0;  // with a failed batch or by closing
  int64_t pieces = 0;          // now
  int64_t bytes = 0;           // now, in those pieces
  int64_t waiters = 0;         // now
};

template <class T>
using Completion = std::function<void(Result<T>)>;

class BatchingRuntime {
 public:
  explicit BatchingRuntime(const Context& ctx = {}, const ResourceLimits& limits = {}) noexcept;
  // Closes all resources. When it returns all callbacks have run, and nothing of the caller's is touched any more:
  // neither the allocator, nor callbacks, nor operands. So it waits for callbacks that run in helpers and in threads
  // that cancel. No other thread may be in a function of the runtime, but they may cancel its calls. Calls that are
  // made meanwhile, by callbacks, get CANCELLED.
  //
  // A callback may destroy the runtime that called it. Calls which its thread has still to complete, further down its
  // stack, are completed before the destructor returns. Two things are left to functions that return later: the
  // completion that runs is destroyed, and tensors that were handed out go back to the allocator when they are dropped.
  ~BatchingRuntime();
  BatchingRuntime(const BatchingRuntime&) = delete;
  BatchingRuntime& operator=(const BatchingRuntime&) = delete;

  // The primary form: `done` is called exactly once, from this call or later from another thread (see "Callbacks"
  // above). Operands without keep-alive need to live only until the call returns.
  void UnbatchGradAsync(const UnbatchGradCall& call, Completion<Tensor> done) noexcept;
  void UnbatchAsync(const UnbatchCall& call, Completion<Tensor> done) noexcept;
  void BatchAsync(const BatchCall& call, Completion<BatchOutput> done) noexcept;

  // Wait for the result.
  Result<Tensor> UnbatchGrad(const UnbatchGradCall& call) noexcept;
  Result<Tensor> Unbatch(const UnbatchCall& call) noexcept;
  Result<BatchOutput> Batch(const BatchCall& call) noexcept;

  // Futures. May throw std::bad_alloc, as std::promise does.
  std::future<Result<Tensor>> UnbatchGradFuture(const UnbatchGradCall& call);
  std::future<Result<Tensor>> UnbatchFuture(const UnbatchCall& call);
  std::future<Result<BatchOutput>> BatchFuture(const BatchCall& call);

  // New resources have the runtime's limits. NOT_FOUND if no call has made this one yet.
  Status SetLimits(ResourceKind kind, const ResourceName& resource, const ResourceLimits& limits) noexcept;
  Result<ResourceLimits> Limits(ResourceKind kind, const ResourceName& resource) const noexcept;
  // NOT_FOUND if no call has made it.
  Result<ResourceStatistics> Statistics(ResourceKind kind, const ResourceName& resource) const noexcept;
  // Waiting calls end with CANCELLED, pieces are dropped, the name is free again. NOT_FOUND if there is none.
  Status Close(ResourceKind kind, const ResourceName& resource) noexcept;
  void CloseAll() noexcept;

 private:
  struct State;
  template <class F>
  Status WithResource(ResourceKind kind, const ResourceName& resource, bool remove, const F& f) const noexcept;

  std::shared_ptr<State> state_;  // null if there was no memory for it: then every call is RESOURCE_EXHAUSTED
};

}  // namespace raggrad
#pragma GCC visibility pop
