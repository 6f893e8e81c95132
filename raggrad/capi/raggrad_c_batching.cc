#include "raggrad/capi/raggrad_c_batching.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "raggrad/capi/c_call.h"
#include "raggrad/core/error_text.h"
#include "raggrad/ops/batching/batching.h"

using namespace raggrad;  // NOLINT: everything here belongs to C
using raggrad::capi::CCall;
using raggrad::capi::GivenContext;
using raggrad::capi::ReadStruct;
using raggrad::capi::Store;

struct rg_batching_runtime {
  GivenContext given;  // outlives the runtime, which uses its callbacks
  std::unique_ptr<BatchingRuntime> runtime;
};

struct rg_cancellation {
  Cancellation token;
};

namespace {

static_assert(RG_BATCH == static_cast<int>(ResourceKind::kBatch) &&
              RG_UNBATCH_GRAD == static_cast<int>(ResourceKind::kUnbatchGrad));

std::string Text(const char* text) { return text == nullptr ? "" : text; }

// May throw std::bad_alloc, like all functions below that make a C++ call of a C one.
ResourceName NameOf(const char* container, const char* name) { return {Text(container), Text(name)}; }

Waiting WaitingOf(const rg_waiting& given) {
  Waiting waiting;
  if (given.timeout_micros != 0) waiting.timeout = WaitTime(given.timeout_micros);
  if (given.cancellation != nullptr) waiting.cancellation = given.cancellation->token;
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
  if (!call.Given(argument, tensor)) return {};
  rg_tensor unread = *tensor;
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
  call.waiting = WaitingOf(given.waiting);
  call.strict = given.strict != 0;
  return call;
}

UnbatchCall Convert(CCall& reader, const rg_unbatch_call& given) {
  UnbatchCall call;
  call.resource = NameOf(given.container, given.name);
  call.batched_tensor = reader.Read("call.batched_tensor", given.batched_tensor);
  call.batch_index = reader.Read("call.batch_index", given.batch_index);
  call.id = reader.Read("call.id", given.id);
  call.timeout_micros = given.timeout_micros;
  call.waiting = WaitingOf(given.waiting);
  return call;
}

BatchCall Convert(CCall& reader, const rg_batch_call& given) {
  BatchCall call;
  const Keeper keeper = KeeperOf(given.release, given.release_argument);
  call.resource = NameOf(given.container, given.name);
  if (given.num_tensors > 0 && reader.Given("call.in_tensors", given.in_tensors)) {
    for (int32_t i = 0; i < given.num_tensors; ++i) {
      call.in_tensors.push_back(
          {reader.Read("call.in_tensors[" + std::to_string(i) + "]", &given.in_tensors[i]), keeper});
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
  call.batching_queue = Text(given.batching_queue);
  call.waiting = WaitingOf(given.waiting);
  return call;
}

// Reads a call, notes its faults and, if there are none, runs body(BatchingRuntime&, C++ call). A call that can be read
// is converted even if it has faults, because its operands have to be released.
template <class Given, class Body>
void WithCall(CCall& reader, std::string_view function, rg_batching_runtime* runtime, const Given* given,
              const Body& body) noexcept {
  reader.Given("runtime", runtime);
  Given known{};
  const Status status = ReadStruct(function, "call", given, &known, sizeof(known));
  reader.Note(status);
  if (!status.ok()) return;
  try {
    const auto call = Convert(reader, known);
    if (reader.ok()) body(*runtime->runtime, call);
  } catch (const std::bad_alloc&) {
    reader.Note(MakeError(Code::kResourceExhausted, function, ": no memory for the call"));
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
  // A copy, because a string_view need not end in a NUL.
  char text[1024];
  const std::string_view message = status.message().substr(0, sizeof(text) - 1);
  std::memcpy(text, message.data(), message.size());
  text[message.size()] = '\0';
  done(user, static_cast<rg_status>(status.code()), text, nullptr, 0);
}

template <class T>
Completion<T> CompletionOf(rg_batching_done done, void* user) {
  return [done, user](Result<T> result) {
    if (!result.ok()) return Tell(done, user, result.status());
    try {
      std::vector<Tensor> tensors = OutputsOf(*std::move(result));
      std::vector<rg_output> outputs(tensors.size());
      for (size_t i = 0; i < tensors.size(); ++i) Store(tensors[i], &outputs[i]);
      done(user, RG_OK, "", outputs.data(), static_cast<int32_t>(outputs.size()));
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
  WithCall(reader, function, runtime, given,
           [&](BatchingRuntime& target, const auto& call) { start(target, call, CompletionOf<T>(done, user)); });
  return reader.Report();
}

template <class F>
rg_status OnResource(std::string_view function, rg_batching_runtime* runtime, int32_t kind, const char* container,
                     const char* name, rg_error* error, const F& f) noexcept {
  CCall call(function, nullptr, error, {});
  if (kind < RG_BATCH || kind > RG_UNBATCH_GRAD) {
    call.Note(InvalidArgument(
        function, "no such kind [kind: expected RG_BATCH (0), RG_UNBATCH (1) or RG_UNBATCH_GRAD (2), got ", kind, "]"));
  }
  call.Given("runtime", runtime);
  if (call.ok()) {
    try {
      call.Note(f(*runtime->runtime, static_cast<ResourceKind>(kind), NameOf(container, name)));
    } catch (const std::bad_alloc&) {
      call.Note(MakeError(Code::kResourceExhausted, function, ": no memory for the name"));
    }
  }
  return call.Report();
}

Status ReadLimits(std::string_view function, const rg_resource_limits* given, ResourceLimits& limits) noexcept {
  rg_resource_limits known;
  rg_resource_limits_init(&known, sizeof(known));
  if (Status s = ReadStruct(function, "limits", given, &known, sizeof(known)); !s.ok()) return s;
  limits = {known.max_pieces, known.max_bytes, known.max_waiters, WaitTime(known.max_piece_age_micros),
            WaitTime(known.default_timeout_micros)};
  return {};
}

// Fills the fields that the program knows of a struct that begins with its size, and keeps that size.
template <class Known>
Status WriteStruct(std::string_view function, std::string_view argument, Known* given, Known values) noexcept {
  Known before{};
  if (Status s = ReadStruct(function, argument, given, &before, sizeof(before)); !s.ok()) return s;
  values.struct_size = before.struct_size;
  std::memcpy(given, &values, std::min(before.struct_size, sizeof(values)));
  return {};
}

rg_resource_limits LimitsToC(const ResourceLimits& limits) noexcept {
  return {0,
          limits.max_pieces,
          limits.max_bytes,
          limits.max_waiters,
          limits.max_piece_age.count(),
          limits.default_timeout.count()};
}

}  // namespace

void rg_resource_limits_init(rg_resource_limits* limits, size_t struct_size) {
  if (limits == nullptr || struct_size < sizeof(size_t)) return;
  std::memset(limits, 0, struct_size);
  rg_resource_limits defaults = LimitsToC({});
  defaults.struct_size = struct_size;
  std::memcpy(limits, &defaults, std::min(struct_size, sizeof(defaults)));
}

rg_status rg_batching_runtime_create(const rg_context* context, const rg_resource_limits* limits,
                                     rg_batching_runtime** runtime, rg_error* error) {
  constexpr std::string_view kFunction = "rg_batching_runtime_create";
  CCall call(kFunction, nullptr, error, {});
  if (!call.Given("runtime", runtime)) return call.Report();
  *runtime = nullptr;
  ResourceLimits known;
  if (limits != nullptr) call.Note(ReadLimits(kFunction, limits, known));
  try {
    auto made = std::make_unique<rg_batching_runtime>();
    call.Note(made->given.Read(kFunction, context));
    made->runtime = std::make_unique<BatchingRuntime>(made->given.context(), known);
    if (call.ok()) *runtime = made.release();
  } catch (const std::bad_alloc&) {
    call.Note(MakeError(Code::kResourceExhausted, kFunction, ": no memory for the runtime"));
  }
  return call.Report();
}

void rg_batching_runtime_destroy(rg_batching_runtime* runtime) { delete runtime; }

rg_cancellation* rg_cancellation_create(void) {
  try {
    return new rg_cancellation;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void rg_cancellation_cancel(const rg_cancellation* cancellation) {
  if (cancellation != nullptr) cancellation->token.Cancel();
}

int32_t rg_cancellation_cancelled(const rg_cancellation* cancellation) {
  return cancellation != nullptr && cancellation->token.cancelled() ? 1 : 0;
}

void rg_cancellation_destroy(rg_cancellation* cancellation) { delete cancellation; }

rg_status rg_unbatch_grad(rg_batching_runtime* runtime, const rg_unbatch_grad_call* call, rg_output* batched_grad,
                          rg_error* error) {
  CCall reader("rg_unbatch_grad", nullptr, error, {batched_grad});
  WithCall(reader, "rg_unbatch_grad", runtime, call, [&](BatchingRuntime& target, const UnbatchGradCall& made) {
    Result<Tensor> result = target.UnbatchGrad(made);
    reader.Note(result.status());
    if (result.ok()) Store(*result, batched_grad);
  });
  return reader.Report();
}

rg_status rg_unbatch(rg_batching_runtime* runtime, const rg_unbatch_call* call, rg_output* unbatched_tensor,
                     rg_error* error) {
  CCall reader("rg_unbatch", nullptr, error, {unbatched_tensor});
  WithCall(reader, "rg_unbatch", runtime, call, [&](BatchingRuntime& target, const UnbatchCall& made) {
    Result<Tensor> result = target.Unbatch(made);
    reader.Note(result.status());
    if (result.ok()) Store(*result, unbatched_tensor);
  });
  return reader.Report();
}

rg_status rg_batch(rg_batching_runtime* runtime, const rg_batch_call* call, rg_output* batched_tensors,
                   rg_output* batch_index, rg_output* id, rg_error* error) {
  CCall reader("rg_batch", nullptr, error, {batch_index, id});
  rg_batch_call known{};
  if (reader.Given("batched_tensors", batched_tensors) &&
      ReadStruct("rg_batch", "call", call, &known, sizeof(known)).ok()) {
    std::fill_n(batched_tensors, std::max(known.num_tensors, 0), rg_output{});
  }
  WithCall(reader, "rg_batch", runtime, call, [&](BatchingRuntime& target, const BatchCall& made) {
    Result<BatchOutput> result = target.Batch(made);
    reader.Note(result.status());
    if (!result.ok()) return;
    for (size_t i = 0; i < made.in_tensors.size(); ++i) Store(result->batched_tensors[i], batched_tensors + i);
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

rg_status rg_resource_set_limits(rg_batching_runtime* runtime, int32_t kind, const char* container, const char* name,
                                 const rg_resource_limits* limits, rg_error* error) {
  constexpr std::string_view kFunction = "rg_resource_set_limits";
  return OnResource(kFunction, runtime, kind, container, name, error,
                    [&](BatchingRuntime& target, ResourceKind which, const ResourceName& resource) {
                      ResourceLimits known;
                      if (Status s = ReadLimits(kFunction, limits, known); !s.ok()) return s;
                      return target.SetLimits(which, resource, known);
                    });
}

rg_status rg_resource_get_limits(rg_batching_runtime* runtime, int32_t kind, const char* container, const char* name,
                                 rg_resource_limits* limits, rg_error* error) {
  constexpr std::string_view kFunction = "rg_resource_get_limits";
  return OnResource(kFunction, runtime, kind, container, name, error,
                    [&](BatchingRuntime& target, ResourceKind which, const ResourceName& resource) {
                      const Result<ResourceLimits> found = target.Limits(which, resource);
                      if (!found.ok()) return found.status();
                      return WriteStruct(kFunction, "limits", limits, LimitsToC(*found));
                    });
}

rg_status rg_resource_get_statistics(rg_batching_runtime* runtime, int32_t kind, const char* container,
                                     const char* name, rg_resource_statistics* statistics, rg_error* error) {
  constexpr std::string_view kFunction = "rg_resource_get_statistics";
  return OnResource(kFunction, runtime, kind, container, name, error,
                    [&](BatchingRuntime& target, ResourceKind which, const ResourceName& resource) {
                      const Result<ResourceStatistics> found = target.Statistics(which, resource);
                      if (!found.ok()) return found.status();
                      const ResourceStatistics& s = *found;
                      return WriteStruct(kFunction, "statistics", statistics,
                                         {0, s.calls, s.succeeded, s.failed, s.cancelled, s.deadline_exceeded,
                                          s.refused, s.pieces_expired, s.pieces_dropped, s.pieces, s.bytes, s.waiters});
                    });
}

rg_status rg_resource_close(rg_batching_runtime* runtime, int32_t kind, const char* container, const char* name,
                            rg_error* error) {
  return OnResource("rg_resource_close", runtime, kind, container, name, error,
                    [](BatchingRuntime& target, ResourceKind which, const ResourceName& resource) {
                      return target.Close(which, resource);
                    });
}

void rg_batching_close_all(rg_batching_runtime* runtime) {
  if (runtime != nullptr) runtime->runtime->CloseAll();
}
