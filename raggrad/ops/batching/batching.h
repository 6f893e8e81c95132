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
// Results, ids, names of resources and error codes are TensorFlow's. README.md beside this file lists where TensorFlow
// hangs, leaks or crashes, and what happens here instead. In short:
//   - Operands are checked before anything is stored, and a failed call leaves no trace.
//   - An error of a batch goes to its owner, once.
//   - Every wait has a deadline, can be cancelled, and ends with CANCELLED when its resource is closed.
//   - Copies and callbacks run outside the lock.
//
// Threads: resources have none. One thread per runtime, the watcher, watches the clock. It is started by the first call
// that waits or the first piece that is stored, and sleeps until the next deadline. It never runs your code, so no
// callback can delay a deadline. A blocking call joins its batch itself and always ends by its deadline.
//
// Callbacks run on the thread that ends the call, before its function returns, and never under a lock. That is the
// thread that brings the last piece, that cancels or that closes. A call that ends by its deadline, and a Batch that is
// due, complete on a helper thread. The first helper starts with the first expired deadline; another one starts for
// every callback that takes longer than 2 ms, up to 64. If all 64 are busy, further callbacks wait for one of them.
// Starting a thread costs some 30 us. Callbacks of one batch run in the order of its calls, the owner's last. Batches
// have no order among each other.
//
// A callback must not throw. It may sleep, call the runtime again, cancel, close, and destroy the runtime. While it
// runs, the function that called it does not return: a thread that brings the last piece waits for the owner's
// callback. Keep-alives are destroyed and the context's allocator is called on the same threads. Both may call the
// runtime, but must not destroy it.
//
// Memory: tensors come from the runtime's allocator. It is called from any of these threads, never under a lock. A
// joined gradient is written once, straight into the result. An operand is copied before that only if it outlives its
// call and has no keep-alive. Gradients in device memory that are joined or copied come from the context's
// device_allocator, or from the library's pool.
//
// fork(): in a child every call gives UNAVAILABLE, and the runtime's memory is not freed.
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

// How the thread of a blocking call sleeps. Implement it if the thread must react to more than the result while it
// waits: to signals, or to other fibers.
class Sleeper {
 public:
  virtual ~Sleeper() = default;

  // Returns when Wake has been called. Called at most once per call, by its thread, without a lock.
  virtual void Sleep() noexcept = 0;
  // Called once per Sleep, perhaps before it, by any thread, the sleeping call's own included. Must neither block nor
  // call the runtime.
  virtual void Wake() noexcept = 0;
};

struct Waiting {
  std::optional<WaitTime> timeout = {};           // unset: the resource's; kNoDeadline: none
  std::optional<Cancellation> cancellation = {};  // ends the wait early
  Sleeper* sleeper = nullptr;                     // of a blocking call; null: sleeps on a condition variable
};

struct UnbatchGradCall {
  ResourceName resource;
  TensorView original_input;  // the call is an owner if this has elements; they are not read
  TensorView batch_index;     // int64 [calls, 3]: key, first row, end; only the keys are read, and only an owner's
  SharedView grad;            // at least rank 1
  TensorView id;              // int64 []
  Waiting waiting = {};
  // Refuses calls that TensorFlow accepts, although they are most likely mistakes: an owner that is not in its own
  // index, ranges that are not contiguous or do not match the pieces, an index that is not [calls, 3] (of a call that
  // is not an owner: [0, 3]), an original_input that has rows but no elements.
  bool strict = false;
  // A cudaStream_t, if grad is in device memory (cuda/cuda.h): the work that computes grad has been queued on it, and
  // an owner's result is made on it. It must live until the piece has been joined or dropped. INVALID_ARGUMENT if it is
  // cudaStreamPerThread, since another thread may join the piece, or if it is being captured into a graph.
  void* stream = nullptr;
};

struct UnbatchCall {
  ResourceName resource;
  TensorView batched_tensor;  // owner: the batch; others: no rows
  TensorView batch_index;     // int64 [calls, 3]
  TensorView id;              // int64 []
  // How long calls wait and pieces are stored in this resource. Counts only in the call that makes the resource. Unset:
  // the runtime's limits.
  std::optional<int64_t> timeout_micros = {};
  Waiting waiting = {};
};

struct BatchCall {
  ResourceName resource;
  std::vector<SharedView> in_tensors;
  // The next five count only in the call that makes the resource.
  int64_t num_batch_threads = 1;  // checked, but no thread is started: the last caller or a helper does the work
  int64_t max_batch_size = 0;     // negative: no limit
  int64_t batch_timeout_micros = 0;
  int64_t max_enqueued_batches = 10;
  std::vector<int64_t> allowed_batch_sizes = {};
  std::string batching_queue = {};  // which queue of the resource the call joins
  Waiting waiting = {};
};

struct BatchOutput {
  std::vector<Tensor> batched_tensors;
  Tensor batch_index;  // int64 [calls, 3] for the owner, [0, 3] for the others
  Tensor id;           // int64 []; all outputs have shape [0] if the inputs have no rows, as in TensorFlow
};

// The limits of one resource. A call that would exceed one gets RESOURCE_EXHAUSTED. A call that completes a batch makes
// room and is never refused. For an Unbatch resource, timeout_micros replaces both times; a Batch ends by its
// batch_timeout_micros. SetLimits and Waiting::timeout override these.
struct ResourceLimits {
  int64_t max_pieces = 1 << 20;                         // stored and not yet collected
  int64_t max_bytes = INT64_MAX;                        // of those pieces
  int64_t max_waiters = 1 << 16;                        // calls that wait
  WaitTime max_piece_age = std::chrono::minutes(10);    // older unclaimed pieces are dropped
  WaitTime default_timeout = std::chrono::minutes(10);  // of a wait without a timeout of its own
};

enum class ResourceKind { kBatch, kUnbatch, kUnbatchGrad };

// Counters since the resource was made, and its current contents. When no call is running or waiting, calls =
// succeeded + failed. A call whose operands are refused is not counted, because it never reaches the resource.
struct ResourceStatistics {
  int64_t calls = 0;
  int64_t succeeded = 0;
  int64_t failed = 0;     // with any error, cancelled and expired ones included
  int64_t cancelled = 0;  // by a token, or because the resource was closed
  int64_t deadline_exceeded = 0;
  int64_t refused = 0;  // RESOURCE_EXHAUSTED or UNAVAILABLE: a limit, or no memory
  int64_t pieces_expired = 0;
  int64_t pieces_dropped = 0;  // with a failed batch, or because the resource was closed
  int64_t pieces = 0;          // now
  int64_t bytes = 0;           // of those pieces
  int64_t waiters = 0;         // calls that wait now
};

template <class T>
using Completion = std::function<void(Result<T>)>;

class BatchingRuntime {
 public:
  explicit BatchingRuntime(const Context& ctx = {}, const ResourceLimits& limits = {}) noexcept;
  // Closes all resources. When it returns, all callbacks have run, and the allocator, callbacks and operands are not
  // touched any more. For that it waits for callbacks that run on helpers and on threads that cancel. No other thread
  // may be in a function of the runtime, but other threads may cancel its calls. Calls that callbacks make meanwhile
  // get CANCELLED.
  //
  // A callback may destroy the runtime that called it. The functions below it on the stack may have more calls to
  // complete; these are completed before the destructor returns. Two things happen later: the running completion is
  // destroyed when it returns, and a result that was handed out goes back to the allocator when it is dropped.
  ~BatchingRuntime();
  BatchingRuntime(const BatchingRuntime&) = delete;
  BatchingRuntime& operator=(const BatchingRuntime&) = delete;

  // The primary form: `done` is called exactly once, from this call or later from another thread (see "Callbacks"
  // above). Operands without a keep-alive need to live only until the call returns.
  void UnbatchGradAsync(const UnbatchGradCall& call, Completion<Tensor> done) noexcept;
  void UnbatchAsync(const UnbatchCall& call, Completion<Tensor> done) noexcept;
  void BatchAsync(const BatchCall& call, Completion<BatchOutput> done) noexcept;

  // The same, but these wait for the result and return it.
  Result<Tensor> UnbatchGrad(const UnbatchGradCall& call) noexcept;
  Result<Tensor> Unbatch(const UnbatchCall& call) noexcept;
  Result<BatchOutput> Batch(const BatchCall& call) noexcept;

  // The same with a future. They may throw std::bad_alloc, as std::promise does.
  std::future<Result<Tensor>> UnbatchGradFuture(const UnbatchGradCall& call);
  std::future<Result<Tensor>> UnbatchFuture(const UnbatchCall& call);
  std::future<Result<BatchOutput>> BatchFuture(const BatchCall& call);

  // Replaces the limits, which are the runtime's in a new resource. NOT_FOUND if no call has made the resource yet.
  Status SetLimits(ResourceKind kind, const ResourceName& resource, const ResourceLimits& limits) noexcept;
  Result<ResourceLimits> Limits(ResourceKind kind, const ResourceName& resource) const noexcept;
  Result<ResourceStatistics> Statistics(ResourceKind kind, const ResourceName& resource) const noexcept;
  // Ends waiting calls with CANCELLED, drops pieces and frees the name. NOT_FOUND if there is no such resource.
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
