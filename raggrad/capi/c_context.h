// Makes a Context of a C program's rg_context. Internal to the library.
#pragma once

#include <atomic>
#include <cstddef>
#include <string_view>

#include "raggrad/capi/raggrad_c.h"
#include "raggrad/core/context.h"

namespace raggrad::capi {

// Reads a context and checks it. It may be null.
Status ReadContext(std::string_view function, const rg_context* given, rg_context& context) noexcept;

// Gives memory back that an output has released, to the context's callbacks or to the library. Returns whether that was
// possible.
bool Free(const rg_context& context, const rg_block& block) noexcept;

// The program's allocator of host or of device memory.
class CallbackAllocator final : public Allocator {
 public:
  CallbackAllocator(const rg_context& context, DeviceKind kind) noexcept : context_(context), kind_(kind) {}

  void* Allocate(size_t bytes) noexcept override;
  void* AllocateOutput(const OutputSpec& spec) noexcept override;
  void Deallocate(void* pointer, size_t bytes) noexcept override;

  // Whether it ever gave memory that the library cannot use.
  bool misaligned() const noexcept { return misaligned_; }

 private:
  void* Ask(size_t bytes, const rg_output_spec* output) noexcept;

  const rg_context& context_;
  const DeviceKind kind_;
  std::atomic<bool> misaligned_ = false;  // atomic: several threads share the allocator of a batching runtime
};

// The program's thread pool.
class CallbackExecutor final : public Executor {
 public:
  explicit CallbackExecutor(const rg_context& context) noexcept : context_(context) {}

  int num_workers() const noexcept override { return context_.num_workers; }
  void Run(int64_t tasks, TaskRef body) noexcept override;

 private:
  const rg_context& context_;
};

// A program's context, and the Context that the library makes of it.
class GivenContext {
 public:
  GivenContext() noexcept = default;
  GivenContext(const GivenContext&) = delete;
  GivenContext& operator=(const GivenContext&) = delete;

  Status Read(std::string_view function, const rg_context* given) noexcept;
  const Context& context() const noexcept { return context_; }
  // The status of a call, or, if it failed and a callback has given memory that is not aligned, an error that says so.
  Status Explain(std::string_view function, const Status& status) const noexcept;

 private:
  rg_context given_{};  // what the program set; the callbacks read it
  CallbackAllocator host_memory_{given_, DeviceKind::kCpu};
  CallbackAllocator device_memory_{given_, DeviceKind::kCuda};
  CallbackExecutor executor_{given_};
  Context context_;
};

}  // namespace raggrad::capi
