// The batching operators.
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "raggrad/capi/c_batching.h"
#include "raggrad/capi/c_call.h"
#include "raggrad/core/error_text.h"

using namespace raggrad;  // NOLINT: everything here belongs to C
using raggrad::capi::CCall;
using raggrad::capi::NameOf;
using raggrad::capi::Store;
using raggrad::capi::TextOf;

namespace {

// May throw std::bad_alloc, like all functions below that make a C++ call of a C one.
Waiting WaitingOf(int64_t wait_micros, const rg_cancellation* cancellation) {
  Waiting waiting;
  if (wait_micros != 0) waiting.timeout = WaitTime(wait_micros);
  if (cancellation != nullptr) waiting.cancellation = cancellation->token;
  return waiting;
}

// Keeps a program's operands alive. When the last copy is destroyed, the operands are released, exactly once.
using Keeper = std::shared_ptr<const void>;
Keeper KeeperOf(void (*release)(void*), void* argument) {
  if (release == nullptr) return nullptr;
  static const char kSomething = 0;  // a null keeper would mean that there is none
  return {&kSomething, [release, argument](const void*) { release(argument); }};
}

// Reads a tensor whose data is not used and may be null.
TensorView WithoutData(CCall& call, std::string_view argument, const rg_tensor* tensor) noexcept {
  rg_tensor unread = call.ReadStruct(argument, tensor);
  if (unread.struct_size == 0) return {};
  unread.struct_size = sizeof(unread);
  if (unread.data == nullptr) unread.data = tensor;
  return call.Read(argument, &unread);
}

UnbatchGradCall Convert(CCall& reader, const rg_unbatch_grad_call& given) {
  UnbatchGradCall call;
  call.grad.keep_alive = KeeperOf(given.release, given.release_argument);
  call.resource = NameOf(given.container, given.name);
  call.original_input = WithoutData(reader, "call.original_input", given.original_input);
  call.batch_index = reader.Read("call.batch_index", given.batch_index);
  call.grad.view = reader.Read("call.grad", given.grad);
  call.id = reader.Read("call.id", given.id);
  call.waiting = WaitingOf(given.wait_micros, given.cancellation);
  call.strict = given.strict != 0;
  call.stream = given.stream;
  return call;
}

UnbatchCall Convert(CCall& reader, const rg_unbatch_call& given) {
  UnbatchCall call;
  call.resource = NameOf(given.container, given.name);
  call.batched_tensor = reader.Read("call.batched_tensor", given.batched_tensor);
  call.batch_index = reader.Read("call.batch_index", given.batch_index);
  call.id = reader.Read("call.id", given.id);
  call.timeout_micros = given.timeout_micros;
  call.waiting = WaitingOf(given.wait_micros, given.cancellation);
  return call;
}

BatchCall Convert(CCall& reader, const rg_batch_call& given) {
  BatchCall call;
  const Keeper keeper = KeeperOf(given.release, given.release_argument);
  call.resource = NameOf(given.container, given.name);
  if (given.num_tensors > 0 && reader.Given("call.in_tensors", given.in_tensors)) {
    for (int32_t i = 0; i < given.num_tensors; ++i) {
      call.in_tensors.push_back(
          {reader.Read("call.in_tensors[" + std::to_string(i) + "]", given.in_tensors[i]), keeper});
    }
  }
  call.num_batch_threads = given.num_batch_threads;
  call.max_batch_size = given.max_batch_size;
  call.batch_timeout_micros = given.batch_timeout_micros;
  call.max_enqueued_batches = given.max_enqueued_batches;
  if (given.num_allowed_batch_sizes > 0 && reader.Given("call.allowed_batch_sizes", given.allowed_batch_sizes)) {
    call.allowed_batch_sizes.assign(given.allowed_batch_sizes,
                                    given.allowed_batch_sizes + given.num_allowed_batch_sizes);
  }
  call.batching_queue = TextOf(given.batching_queue);
  call.waiting = WaitingOf(given.wait_micros, given.cancellation);
  return call;
}

// The context of a runtime, shared: a callback may destroy the runtime before the function that called it returns.
using SharedContext = std::shared_ptr<const capi::GivenContext>;

// Reads a call, notes its faults and, if there are none, runs body(BatchingRuntime&, C++ call, SharedContext). A call
// that can be read is converted even if it has faults, because its operands have to be released.
template <class Given, class Body>
void WithCall(CCall& reader, rg_batching_runtime* runtime, const Given* given, const Body& body) noexcept {
  reader.Given("runtime", runtime);
  Given known{};
  reader.Note(capi::ReadStruct(reader.function(), {"call"}, given, known));
  if (known.struct_size == 0) return;
  try {
    const auto call = Convert(reader, known);
    if (reader.ok()) body(*runtime->runtime, call, SharedContext(runtime->given));
  } catch (const std::bad_alloc&) {
    reader.Note(MakeError(Code::kResourceExhausted, reader.function(), ": no memory for the call"));
  }
}

std::vector<Tensor> OutputsOf(Tensor tensor) {
  std::vector<Tensor> outputs;
  outputs.push_back(std::move(tensor));
  return outputs;
}

std::vector<Tensor> OutputsOf(BatchOutput output) {
  std::vector<Tensor> outputs = std::move(output.batched_tensors);
  outputs.push_back(std::move(output.batch_index));
  outputs.push_back(std::move(output.id));
  return outputs;
}

void Tell(rg_batching_done done, void* user, const Status& status) noexcept {
  char text[1024];  // a copy, because a string_view need not end in a NUL
  capi::WriteMessage({sizeof(rg_error), text, sizeof(text)}, status.message());
  done(user, static_cast<rg_status>(status.code()), text, nullptr, 0);
}

template <class T>
Completion<T> CompletionOf(std::string_view function, SharedContext given, rg_batching_done done, void* user) {
  return [function, given = std::move(given), done, user](Result<T> result) {
    if (!result.ok()) return Tell(done, user, given->Explain(function, result.status()));
    try {
      std::vector<Tensor> tensors = OutputsOf(*std::move(result));
      std::vector<rg_output> outputs(tensors.size());
      std::vector<rg_output*> list(tensors.size());
      for (size_t i = 0; i < tensors.size(); ++i) {
        outputs[i].struct_size = sizeof(rg_output);
        list[i] = &outputs[i];
        Store(tensors[i], list[i]);
      }
      done(user, RG_OK, "", list.data(), static_cast<int32_t>(list.size()));
    } catch (const std::bad_alloc&) {
      Tell(done, user, Status(Code::kResourceExhausted, "Batching: no memory for the outputs"));
    }
  };
}

// Makes an asynchronous call with start(runtime, call, completion).
template <class T, class Given, class Start>
rg_status Begin(std::string_view function, rg_batching_runtime* runtime, const Given* given, rg_batching_done done,
                void* user, rg_error* error, const Start& start) noexcept {
  CCall reader(function, nullptr, error, {});
  reader.Given("done", reinterpret_cast<const void*>(done));
  WithCall(reader, runtime, given, [&](BatchingRuntime& target, const auto& call, const SharedContext& context) {
    start(target, call, CompletionOf<T>(function, context, done, user));
  });
  return reader.Report();
}

}  // namespace

rg_status rg_unbatch_grad(rg_batching_runtime* runtime, const rg_unbatch_grad_call* call, rg_output* batched_grad,
                          rg_error* error) {
  CCall reader("rg_unbatch_grad", nullptr, error, {batched_grad});
  WithCall(reader, runtime, call,
           [&](BatchingRuntime& target, const UnbatchGradCall& made, const SharedContext& given) {
             Result<Tensor> result = target.UnbatchGrad(made);
             reader.Note(given->Explain(reader.function(), result.status()));
             if (result.ok()) Store(*result, batched_grad);
           });
  return reader.Report();
}

rg_status rg_unbatch(rg_batching_runtime* runtime, const rg_unbatch_call* call, rg_output* unbatched_tensor,
                     rg_error* error) {
  CCall reader("rg_unbatch", nullptr, error, {unbatched_tensor});
  WithCall(reader, runtime, call, [&](BatchingRuntime& target, const UnbatchCall& made, const SharedContext& given) {
    Result<Tensor> result = target.Unbatch(made);
    reader.Note(given->Explain(reader.function(), result.status()));
    if (result.ok()) Store(*result, unbatched_tensor);
  });
  return reader.Report();
}

rg_status rg_batch(rg_batching_runtime* runtime, const rg_batch_call* call, rg_output* const* batched_tensors,
                   rg_output* batch_index, rg_output* id, rg_error* error) {
  CCall reader("rg_batch", nullptr, error, {batch_index, id});
  if (call != nullptr)
    reader.ReadOutputs("batched_tensors", batched_tensors, reader.ReadStruct("call", call).num_tensors);
  WithCall(reader, runtime, call, [&](BatchingRuntime& target, const BatchCall& made, const SharedContext& given) {
    Result<BatchOutput> result = target.Batch(made);
    reader.Note(given->Explain(reader.function(), result.status()));
    if (!result.ok()) return;
    for (size_t i = 0; i < made.in_tensors.size(); ++i) Store(result->batched_tensors[i], batched_tensors[i]);
    Store(result->batch_index, batch_index);
    Store(result->id, id);
  });
  return reader.Report();
}

rg_status rg_unbatch_grad_async(rg_batching_runtime* runtime, const rg_unbatch_grad_call* call, rg_batching_done done,
                                void* user, rg_error* error) {
  return Begin<Tensor>("rg_unbatch_grad_async", runtime, call, done, user, error,
                       [](BatchingRuntime& target, const UnbatchGradCall& made, Completion<Tensor> completion) {
                         target.UnbatchGradAsync(made, std::move(completion));
                       });
}

rg_status rg_unbatch_async(rg_batching_runtime* runtime, const rg_unbatch_call* call, rg_batching_done done, void* user,
                           rg_error* error) {
  return Begin<Tensor>("rg_unbatch_async", runtime, call, done, user, error,
                       [](BatchingRuntime& target, const UnbatchCall& made, Completion<Tensor> completion) {
                         target.UnbatchAsync(made, std::move(completion));
                       });
}

rg_status rg_batch_async(rg_batching_runtime* runtime, const rg_batch_call* call, rg_batching_done done, void* user,
                         rg_error* error) {
  return Begin<BatchOutput>("rg_batch_async", runtime, call, done, user, error,
                            [](BatchingRuntime& target, const BatchCall& made, Completion<BatchOutput> completion) {
                              target.BatchAsync(made, std::move(completion));
                            });
}
