// What the C functions have in common: they read C structs, run an operator and give C structs back. Internal.
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

// Copies what the library and the program both know of a struct that begins with its size into `known`, which is
// zeroed. A program that was compiled against a newer header may have more fields, but then must not have set them: the
// library would silently not do what it is told.
Status ReadStruct(std::string_view function, std::string_view argument, const void* given, void* known,
                  size_t known_size) noexcept;

// The same for a context, which may be null, and checks it.
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
  std::atomic<bool> misaligned_ = false;  // a runtime's is asked by several threads
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

// A program's context, and what the library makes of it.
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
  // A fault that somebody else has found. The first one counts.
  void Note(const Status& status) noexcept {
    if (status_.ok()) status_ = status;
  }
  // False, and a fault, if it is null.
  bool Given(std::string_view argument, const void* pointer) noexcept;
  bool ok() const noexcept { return status_.ok(); }
  // Zeroes a list of outputs.
  void ReadOutputs(std::string_view argument, rg_output* outputs, int64_t count) noexcept;

  // `compute(const Context&)` gives a Result; `store(value)` hands its tensors over.
  template <class Compute, class StoreValue>
  rg_status Run(const Compute& compute, const StoreValue& store) noexcept {
    if (status_.ok()) {
      auto result = compute(given_.context());
      Note(result.status());
      if (result.ok()) store(*result);
    }
    return Report();
  }

  // The end of a call that has nothing to run.
  rg_status Report() noexcept;

 private:
  void ReadOutputs(std::initializer_list<rg_output*> outputs) noexcept;

  const std::string_view function_;
  rg_error* const error_;
  GivenContext given_;
  Status status_;
};

}  // namespace raggrad::capi
