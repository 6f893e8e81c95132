#include "py_runtime.h"

#include "gil.h"

namespace raggrad::python {
namespace {

Context MakeContext() {
  Context ctx;
  ctx.allocator = &CopyAllocator();
  ctx.executor = &CopyExecutor();
  return ctx;
}

}  // namespace

PyRuntime::PyRuntime(const ResourceLimits& limits)
    : runtime_(std::make_shared<BatchingRuntime>(MakeContext(), limits)) {
  all().push_back(runtime_);
}

PyRuntime::~PyRuntime() {
  std::erase(all(), runtime_);
  const CallFromPython call_from_python;
  const WithoutGil released;  // the runtime's threads end here, and may want the GIL
  runtime_.reset();
}

void PyRuntime::CloseAll() {
  const CallFromPython call_from_python;
  std::vector<std::shared_ptr<BatchingRuntime>> runtimes = all();  // a copy: closing runs Python code
  for (const auto& runtime : runtimes) runtime->CloseAll();
  const WithoutGil released;
  runtimes.clear();
}

void PyRuntime::EndAll() {
  RefuseCalls();
  CloseAll();  // ends futures and callbacks
  AwaitCalls();
}

std::vector<std::shared_ptr<BatchingRuntime>>& PyRuntime::all() {
  static auto* const runtimes = new std::vector<std::shared_ptr<BatchingRuntime>>;
  return *runtimes;
}

}  // namespace raggrad::python
