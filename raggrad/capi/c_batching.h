// The C forms of a batching runtime and of a cancellation token. Internal to the library.
#pragma once

#include <memory>
#include <string>

#include "raggrad/capi/c_context.h"
#include "raggrad/capi/raggrad_c_batching.h"
#include "raggrad/ops/batching/batching.h"

struct rg_batching_runtime {
  // Outlives the runtime, which uses its callbacks. Calls share it, because they may return after the runtime is gone.
  std::shared_ptr<raggrad::capi::GivenContext> given = std::make_shared<raggrad::capi::GivenContext>();
  std::unique_ptr<raggrad::BatchingRuntime> runtime;
};

struct rg_cancellation {
  raggrad::Cancellation token;
};

namespace raggrad::capi {

inline std::string TextOf(const char* text) { return text == nullptr ? "" : text; }

// May throw std::bad_alloc.
inline ResourceName NameOf(const char* container, const char* name) { return {TextOf(container), TextOf(name)}; }

}  // namespace raggrad::capi
