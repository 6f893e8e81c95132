// Shared by the C functions: reads C structs, runs an operator and fills C structs. Internal to the library.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "raggrad/capi/raggrad_c.h"
#include "raggrad/core/context.h"
#include "raggrad/core/list.h"
#include "raggrad/core/ragged.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::capi {

// Copies the part of a struct that both the library and the program know into `known`, which is zeroed. The struct
// begins with its size. A program that was compiled against a newer header may have more fields but must not have set
// them: the library would silently ignore them.
Status ReadStruct(std::string_view function, std::string_view argument, const void* given, void* known,
                  size_t known_size) noexcept;

// Reads a context in the same way and checks it. It may be null.
Status ReadContext(std::string_view function, const rg_context* given, rg_context& context) noexcept;

// Hands the memory of a tensor over to the caller.
void Store(Tensor& tensor, rg_output* output) noexcept;

// The program's allocator.
class CallbackAllocator final : public Allocator {
 public:
  explicit CallbackAllocator(const rg_context& context) noexcept : context_(context) {}

  void* Allocate(size_t bytes) noexcept override;
  void* AllocateOutput(const OutputSpec& spec) noexcept override;
  void Deallocate(void* pointer, size_t bytes) noexcept override;

  // Whether it ever gave memory that the library cannot use.
  bool misaligned() const noexcept { return misaligned_; }

 private:
  void* Ask(size_t bytes, const rg_output_spec* output) noexcept;

  const rg_context& context_;
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
  bool misaligned() const noexcept { return allocator_.misaligned(); }

 private:
  rg_context given_{};  // what the program set; the callbacks read it
  CallbackAllocator allocator_{given_};
  CallbackExecutor executor_{given_};
  Context context_;
};

// The C++ views of a variant array's elements.
class ElementViews {
 public:
  enum class Splits { kRead, kIgnored };
  explicit ElementViews(Splits splits) noexcept : with_splits_(splits == Splits::kRead) {}

  Status Read(std::string_view function, std::string_view argument, const rg_variant_array& array,
              const Context& ctx) noexcept;
  std::span<const std::optional<RaggedView>> views() const noexcept { return views_.span(); }

 private:
  const bool with_splits_;
  List<std::optional<RaggedView>> views_;
  List<TensorView> splits_;  // of all elements
};

// One call: reads arguments, remembers the first fault, runs the operator if there was none, reports.
class CCall {
 public:
  // Zeroes the outputs.
  CCall(std::string_view function, const rg_context* context, rg_error* error,
        std::initializer_list<rg_output*> outputs) noexcept;

  TensorView Read(std::string_view argument, const rg_tensor* tensor) noexcept;
  // The views lie in `storage`.
  std::span<const TensorView> Read(std::string_view argument, const rg_tensor* tensors, int64_t count,
                                   List<TensorView>& storage) noexcept;
  // The view refers to `storage`.
  VariantArrayView Read(std::string_view argument, const rg_variant_array* array, ElementViews& storage) noexcept;
  SegmentCombiner ReadCombiner(int32_t combiner) noexcept;
  // Notes a fault that was found elsewhere. The first one counts.
  void Note(const Status& status) noexcept {
    if (status_.ok()) status_ = status;
  }
  // Returns whether the argument is given; a null pointer is a fault.
  bool Given(std::string_view argument, const void* pointer) noexcept;
  bool ok() const noexcept { return status_.ok(); }
  // Zeroes a list of outputs.
  void ReadOutputs(std::string_view argument, rg_output* outputs, int64_t count) noexcept;

  // Calls compute(const Context&) -> Result, hands the tensors over with store(value), and reports.
  template <class Compute, class StoreValue>
  rg_status Run(const Compute& compute, const StoreValue& store) noexcept {
    if (status_.ok()) {
      auto result = compute(given_.context());
      Note(result.status());
      if (result.ok()) store(*result);
    }
    return Report();
  }

  // Ends a call: writes the message and returns the code.
  rg_status Report() noexcept;

 private:
  void ReadOutputs(std::initializer_list<rg_output*> outputs) noexcept;

  const std::string_view function_;
  rg_error* const error_;
  GivenContext given_;
  Status status_;
};

}  // namespace raggrad::capi
