// What the C functions have in common: they read C structs, run an operator and give C structs back. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "raggrad/capi/raggrad_c.h"
#include "raggrad/core/context.h"
#include "raggrad/core/ragged.h"
#include "raggrad/core/scratch.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::capi {

// Copies what the library and the program both know of into `context`, which is zeroed, and checks it.
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
  bool misaligned_ = false;
};

// The program's thread pool.
class CallbackParallel final : public Parallel {
 public:
  explicit CallbackParallel(const rg_context& context) noexcept : context_(context) {}

  int num_workers() const noexcept override { return context_.num_workers; }
  void Run(int64_t tasks, TaskRef body) noexcept override;

 private:
  const rg_context& context_;
};

// The C++ views of a variant array's elements.
class ElementViews {
 public:
  using View = std::optional<RaggedView>;

  ElementViews() noexcept = default;
  ElementViews(const ElementViews&) = delete;
  ElementViews& operator=(const ElementViews&) = delete;
  ~ElementViews();

  Status Read(std::string_view function, std::string_view argument, const rg_variant_array& array,
              const Context& ctx) noexcept;
  std::span<const View> views() const noexcept { return {views_, static_cast<size_t>(count_)}; }

 private:
  struct alignas(View) Storage {
    std::byte bytes[sizeof(View)];
  };

  Scratch<Storage> storage_;
  View* views_ = nullptr;
  int64_t count_ = 0;
};

// One call: reads arguments, remembers the first fault, runs the operator if there was none, reports.
class Call {
 public:
  // Zeroes the outputs.
  Call(std::string_view function, const rg_context* context, rg_error* error,
       std::initializer_list<rg_output*> outputs) noexcept;

  TensorView Read(std::string_view argument, const rg_tensor* tensor) noexcept;
  // The view refers to `storage`.
  VariantArrayView Read(std::string_view argument, const rg_variant_array* array, ElementViews& storage) noexcept;
  SegmentCombiner ReadCombiner(int32_t combiner) noexcept;

  // `compute(const Context&)` gives a Result; `store(value)` hands its tensors over.
  template <class Compute, class StoreValue>
  rg_status Run(const Compute& compute, const StoreValue& store) noexcept {
    if (status_.ok()) {
      auto result = compute(context_);
      Note(result.status());
      if (result.ok()) store(*result);
    }
    return Report();
  }

 private:
  void Note(const Status& status) noexcept {
    if (status_.ok()) status_ = status;
  }
  bool Given(std::string_view argument, const void* pointer) noexcept;
  void ReadOutputs(std::initializer_list<rg_output*> outputs) noexcept;
  Status MakeContext() noexcept;
  rg_status Report() noexcept;

  const std::string_view function_;
  rg_error* const error_;
  rg_context given_{};  // what the program set; the callbacks read it
  CallbackAllocator allocator_;
  CallbackParallel parallel_;
  Context context_;
  Status status_;
};

}  // namespace raggrad::capi
