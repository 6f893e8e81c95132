// The functions that python/raggrad/tf/on_demand.py calls.
#include "operators.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensors.h"

namespace raggrad_tf {
namespace {

struct Operator {
  const char* name;
  std::atomic<int64_t> calls{0};
};

Operator operators[] = {{"Batch"},
                        {"RaggedTensorFromVariant"},
                        {"RaggedTensorToVariant"},
                        {"RaggedTensorToVariantGradient"},
                        {"Unbatch"},
                        {"UnbatchGrad"}};

Operator* Find(const char* name) {
  for (Operator& op : operators) {
    if (std::strcmp(op.name, name) == 0) return &op;
  }
  return nullptr;
}

}  // namespace

void CountCall(const char* op) { Find(op)->calls.fetch_add(1, std::memory_order_relaxed); }

}  // namespace raggrad_tf

extern "C" {

// Says how to ask whether there is memory. Call it before the first operator runs.
void raggrad_tf_on_demand_ask_memory(bool (*allows)(size_t bytes)) { raggrad_tf::memory_allows = allows; }

// How many calls of the operator raggrad answered; -1 if there is no such operator.
int64_t raggrad_tf_on_demand_calls(const char* name) {
  const auto* const op = raggrad_tf::Find(name);
  return op != nullptr ? op->calls.load() : -1;
}
}
