// The functions that python/raggrad/tf calls.
#include <string>
#include <string_view>

#include "adapter.h"
#include "operators.h"

namespace raggrad::tf_door {
namespace {

// A kernel for one type. TensorFlow takes the matching kernel of the highest priority; its own have 0.
void Register(const Operator& op, DType type, TF_Status* status) {
  TF_KernelBuilder* const builder = TF_NewKernelBuilder(op.name, "CPU", nullptr, op.compute, nullptr);
  TF_KernelBuilder_TypeConstraint(builder, "T", static_cast<TF_DataType>(type), status);
  if (TF_GetCode(status) != TF_OK) return TF_DeleteKernelBuilder(builder);
  TF_KernelBuilder_Priority(builder, 1);
  TF_RegisterKernelBuilder(op.name, builder, status);
}

}  // namespace
}  // namespace raggrad::tf_door

#pragma GCC visibility push(default)
extern "C" {

// Registers all kernels. Call it once. Returns null, or why TensorFlow refused one.
const char* raggrad_tf_register() {
  using namespace raggrad::tf_door;
  static std::string error;
  const TfStatus status(TF_NewStatus());
  for (const Operator& op : Operators()) {
    for (const raggrad::DType type : op.types) {
      Register(op, type, status.get());
      if (TF_GetCode(status.get()) == TF_OK) continue;
      error.assign(op.name).append(": ").append(TF_Message(status.get()));
      return error.c_str();
    }
  }
  return nullptr;
}

// The name of operator number i, null behind the last.
const char* raggrad_tf_operator(int i) {
  const auto operators = raggrad::tf_door::Operators();
  return i < static_cast<int>(operators.size()) ? operators[static_cast<size_t>(i)].name : nullptr;
}

// How many calls of the operator raggrad answered; -1 if there is no such operator.
int64_t raggrad_tf_calls(const char* name) {
  for (const auto& op : raggrad::tf_door::Operators()) {
    if (std::string_view(op.name) == name) return op.calls->load();
  }
  return -1;
}

// Whether a request for memory can be granted.
bool raggrad_tf_memory_allows(size_t bytes) { return raggrad::tf_door::MemoryAllows(bytes); }

// How many threads a call uses; 0: as many as the library's pool has.
void raggrad_tf_set_threads(int count) { raggrad::tf_door::SetThreads(count); }
}
#pragma GCC visibility pop
