// Runtimes, their resources, and cancellation.
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "raggrad/capi/c_batching.h"
#include "raggrad/capi/c_call.h"
#include "raggrad/core/error_text.h"

using namespace raggrad;  // NOLINT: everything here belongs to C
using raggrad::capi::CCall;
using raggrad::capi::NameOf;
using raggrad::capi::ReadStruct;
using raggrad::capi::WriteStruct;

namespace {

static_assert(RG_BATCH == static_cast<int>(ResourceKind::kBatch) &&
              RG_UNBATCH_GRAD == static_cast<int>(ResourceKind::kUnbatchGrad));

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
  if (Status s = ReadStruct(function, {"limits"}, given, known); !s.ok()) return s;
  limits = {known.max_pieces, known.max_bytes, known.max_waiters, WaitTime(known.max_piece_age_micros),
            WaitTime(known.default_timeout_micros)};
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
    call.Note(made->given->Read(kFunction, context));
    made->runtime = std::make_unique<BatchingRuntime>(made->given->context(), known);
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
                      return WriteStruct(kFunction, {"limits"}, limits, LimitsToC(*found));
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
                      return WriteStruct(kFunction, {"statistics"}, statistics,
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
