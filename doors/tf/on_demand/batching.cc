// Kernels of Batch, Unbatch and UnbatchGrad. They are asynchronous: a call that waits holds no thread. Resources live
// as TensorFlow's do, in containers of the device's resource manager: as long as the process for eager calls, as long
// as the session or server for graphs, or until their container is cleared (tf.compat.v1.Session.reset).
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "operators.h"
#include "raggrad/capi/raggrad_c_batching.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensors.h"

namespace raggrad_tf {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::CancellationManager;
using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// The runtime of one container. It ends with the container, and so do calls that wait in it: CANCELLED. Its calls use
// raggrad's threads, because they may outlive a step.
class Runtime : public tensorflow::ResourceBase {
 public:
  using Pointer = tensorflow::core::RefCountPtr<Runtime>;

  static absl::Status Find(OpKernelContext* tf, const std::string& container, Pointer* runtime) {
    Runtime* found = nullptr;
    TF_RETURN_IF_ERROR(tf->resource_manager()->LookupOrCreate<Runtime>(container, "raggrad batching", &found, Make));
    runtime->reset(found);
    return {};
  }

  ~Runtime() override { rg_batching_runtime_destroy(runtime_); }

  rg_batching_runtime* get() const { return runtime_; }
  Outputs& outputs() { return outputs_; }
  std::string DebugString() const override { return "raggrad's resources of Batch, Unbatch and UnbatchGrad"; }

 private:
  static absl::Status Make(Runtime** made) {
    auto runtime = std::unique_ptr<Runtime>(new Runtime);
    ErrorText error;
    TF_RETURN_IF_ERROR(error.StatusOf(
        rg_batching_runtime_create(runtime->outputs_.context(), nullptr, &runtime->runtime_, error.get())));
    *made = runtime.release();
    return {};
  }

  Outputs outputs_;
  rg_batching_runtime* runtime_ = nullptr;
};

// Lets TensorFlow cancel a call.
class Cancellation {
 public:
  explicit Cancellation(CancellationManager* manager)
      : manager_(manager), token_(rg_cancellation_create(), rg_cancellation_destroy) {
    if (manager_ == nullptr) return;
    number_ = manager_->get_cancellation_token();
    const bool registered =
        manager_->RegisterCallback(number_, [token = token_] { rg_cancellation_cancel(token.get()); });
    if (!registered) rg_cancellation_cancel(token_.get());  // it is too late already
  }
  // Does not wait for a cancellation that runs now: it may be what ended the call.
  ~Cancellation() {
    if (manager_ != nullptr) manager_->TryDeregisterCallback(number_);
  }
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  const rg_cancellation* get() const { return token_.get(); }

 private:
  CancellationManager* const manager_;
  std::shared_ptr<rg_cancellation> token_;
  tensorflow::CancellationToken number_ = 0;
};

// One call, until it is done.
struct Pending {
  Pending(OpKernelContext* tf, AsyncOpKernel::DoneCallback done)
      : tf(tf), done(std::move(done)), cancellation(tf->cancellation_manager()) {}

  OpKernelContext* tf;
  AsyncOpKernel::DoneCallback done;
  Cancellation cancellation;
  Runtime* runtime = nullptr;  // not owned: it waits for its calls when it ends
};

void Finish(std::unique_ptr<Pending> pending, const absl::Status& status) {
  if (!status.ok()) pending->tf->CtxFailure(status);
  const auto done = std::move(pending->done);
  pending.reset();  // TensorFlow may destroy the step in done()
  done();
}

// An rg_batching_done.
void Complete(void* user, rg_status code, const char* message, rg_output* const* outputs, int32_t num_outputs) {
  std::unique_ptr<Pending> pending(static_cast<Pending*>(user));
  absl::Status status(static_cast<absl::StatusCode>(code), message == nullptr ? "" : message);
  for (int32_t i = 0; i < num_outputs; ++i) {
    Tensor tensor;
    status.Update(pending->runtime->outputs().Take(outputs[i], &tensor));
    if (status.ok() && tensor.dtype() != pending->tf->expected_output_dtype(i)) {
      status = absl::InvalidArgumentError(absl::StrCat("Type mismatch: actual ", DataTypeString(tensor.dtype()),
                                                       " vs. expect ",
                                                       DataTypeString(pending->tf->expected_output_dtype(i))));
    }
    if (status.ok()) pending->tf->set_output(i, std::move(tensor));
  }
  Finish(std::move(pending), status);
}

class BatchingKernel : public AsyncOpKernel {
 public:
  explicit BatchingKernel(OpKernelConstruction* construction) : AsyncOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("container", &container_));
    OP_REQUIRES_OK(construction, construction->GetAttr("shared_name", &name_));
    if (name_.empty()) name_ = name();
  }

  void ComputeAsync(OpKernelContext* tf, DoneCallback done) final {
    CountCall(type_string().c_str());
    auto pending = std::make_unique<Pending>(tf, std::move(done));
    Runtime::Pointer runtime;  // must not end while this thread is in one of its functions
    const absl::Status found = Runtime::Find(tf, container_, &runtime);
    if (!found.ok()) return Finish(std::move(pending), found);
    pending->runtime = runtime.get();
    ErrorText error;
    Pending* const user = pending.release();
    const rg_status code = Begin(tf, user, error.get());
    if (code != RG_OK) Finish(std::unique_ptr<Pending>(user), error.StatusOf(code));
  }

 protected:
  // Calls the asynchronous function of raggrad with Complete and `user`.
  virtual rg_status Begin(OpKernelContext* tf, Pending* user, rg_error* error) = 0;

  // A call with the members that all have.
  template <class C>
  C NewCall(const Pending& pending) const {
    auto call = Init<C>();
    call.container = container_.c_str();
    call.name = name_.c_str();
    call.cancellation = pending.cancellation.get();
    return call;
  }

 private:
  std::string container_;
  std::string name_;
};

void Release(void* operands) { delete static_cast<Operands*>(operands); }

class UnbatchGrad : public BatchingKernel {
 public:
  using BatchingKernel::BatchingKernel;

 private:
  rg_status Begin(OpKernelContext* tf, Pending* user, rg_error* error) override {
    auto operands = std::make_unique<Operands>();
    auto call = NewCall<rg_unbatch_grad_call>(*user);
    call.original_input = operands->Add(tf->input(0));
    call.batch_index = operands->Add(tf->input(1));
    call.grad = operands->Add(tf->input(2));
    call.id = operands->Add(tf->input(3));
    call.release = Release;
    call.release_argument = operands.release();
    return rg_unbatch_grad_async(user->runtime->get(), &call, Complete, user, error);
  }
};

class Unbatch : public BatchingKernel {
 public:
  explicit Unbatch(OpKernelConstruction* construction) : BatchingKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("timeout_micros", &timeout_micros_));
  }

 private:
  rg_status Begin(OpKernelContext* tf, Pending* user, rg_error* error) override {
    Operands operands;
    auto call = NewCall<rg_unbatch_call>(*user);
    call.batched_tensor = operands.Add(tf->input(0));
    call.batch_index = operands.Add(tf->input(1));
    call.id = operands.Add(tf->input(2));
    call.timeout_micros = timeout_micros_;
    return rg_unbatch_async(user->runtime->get(), &call, Complete, user, error);
  }

  int32_t timeout_micros_;
};

class Batch : public BatchingKernel {
 public:
  explicit Batch(OpKernelConstruction* construction) : BatchingKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("num_batch_threads", &num_batch_threads_));
    OP_REQUIRES_OK(construction, construction->GetAttr("max_batch_size", &max_batch_size_));
    OP_REQUIRES_OK(construction, construction->GetAttr("batch_timeout_micros", &batch_timeout_micros_));
    OP_REQUIRES_OK(construction, construction->GetAttr("max_enqueued_batches", &max_enqueued_batches_));
    OP_REQUIRES_OK(construction, construction->GetAttr("batching_queue", &batching_queue_));
    std::vector<int32_t> sizes;
    OP_REQUIRES_OK(construction, construction->GetAttr("allowed_batch_sizes", &sizes));
    allowed_batch_sizes_.assign(sizes.begin(), sizes.end());
  }

 private:
  rg_status Begin(OpKernelContext* tf, Pending* user, rg_error* error) override {
    auto operands = std::make_unique<Operands>();
    std::vector<const rg_tensor*> tensors;
    for (int i = 0; i < tf->num_inputs(); ++i) tensors.push_back(operands->Add(tf->input(i)));
    auto call = NewCall<rg_batch_call>(*user);
    call.in_tensors = tensors.data();
    call.num_tensors = tf->num_inputs();
    call.num_batch_threads = num_batch_threads_;
    call.max_batch_size = max_batch_size_;
    call.batch_timeout_micros = batch_timeout_micros_;
    call.max_enqueued_batches = max_enqueued_batches_;
    call.allowed_batch_sizes = allowed_batch_sizes_.data();
    call.num_allowed_batch_sizes = static_cast<int32_t>(allowed_batch_sizes_.size());
    call.batching_queue = batching_queue_.c_str();
    call.release = Release;
    call.release_argument = operands.release();
    return rg_batch_async(user->runtime->get(), &call, Complete, user, error);
  }

  int32_t num_batch_threads_;
  int32_t max_batch_size_;
  int32_t batch_timeout_micros_;
  int32_t max_enqueued_batches_;
  std::string batching_queue_;
  std::vector<int64_t> allowed_batch_sizes_;
};

#define CPU_KERNEL(name) Name(name).Device(tensorflow::DEVICE_CPU).TypeConstraint("T", kTypes).Priority(1)
REGISTER_KERNEL_BUILDER(CPU_KERNEL("Batch"), Batch);
REGISTER_KERNEL_BUILDER(CPU_KERNEL("Unbatch"), Unbatch);
REGISTER_KERNEL_BUILDER(CPU_KERNEL("UnbatchGrad"), UnbatchGrad);
#undef CPU_KERNEL

}  // namespace
}  // namespace raggrad_tf
