// Shared by the C functions: reads arguments, runs an operator and fills outputs. Internal to the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "raggrad/capi/c_context.h"
#include "raggrad/capi/c_structs.h"
#include "raggrad/capi/raggrad_c.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::capi {

// Copies a message into the program's buffer, with a NUL at its end. One that is too long is cut between characters, so
// that UTF-8 stays valid.
void WriteMessage(const rg_error& error, std::string_view text) noexcept;

// One call: reads arguments, remembers the first fault, runs the operator if there was none, reports.
class CCall {
 public:
  static constexpr size_t kMaxOutputs = 5;

  // Zeroes the outputs; at most kMaxOutputs.
  CCall(std::string_view function, const rg_context* context, rg_error* error,
        std::initializer_list<rg_output*> outputs) noexcept;

  // Zeroes a list of outputs.
  void ReadOutputs(std::string_view argument, rg_output* const* outputs, int64_t count) noexcept;
  TensorView Read(std::string_view argument, const rg_tensor* tensor) noexcept;
  MutableTensorView Read(std::string_view argument, const rg_mutable_tensor* tensor) noexcept;
  // The views lie in `storage`.
  std::span<const TensorView> Read(std::string_view argument, const rg_tensor* const* tensors, int64_t count,
                                   List<TensorView>& storage) noexcept;
  // The view refers to `storage`.
  VariantArrayView Read(std::string_view argument, const rg_variant_array* array, ElementViews& storage) noexcept;
  // A copy of the members that the library knows; all 0 after a fault.
  template <class T>
  T ReadStruct(std::string_view argument, const T* given) noexcept {
    T known{};
    const Status status = capi::ReadStruct(function_, {argument}, given, known);
    Note(status);
    return status.ok() ? known : T{};
  }
  SegmentCombiner ReadCombiner(int32_t combiner) noexcept;
  // Returns whether the argument is given; a null pointer is a fault.
  bool Given(std::string_view argument, const void* pointer) noexcept;

  // Notes a fault that was found elsewhere. The first one counts.
  void Note(const Status& status) noexcept {
    if (status_.ok()) status_ = status;
  }
  bool ok() const noexcept { return status_.ok(); }
  std::string_view function() const noexcept { return function_; }

  // Calls compute(const Context&) -> Result, hands the value over with store(value), and reports.
  template <class Compute, class StoreValue>
  rg_status Run(const Compute& compute, const StoreValue& store) noexcept {
    if (status_.ok()) {
      auto result = compute(given_.context());
      Note(result.status());
      if (result.ok()) store(*result);
    }
    return Report();
  }
  // The same for compute(const Context&) -> Status.
  template <class Compute>
  rg_status Run(const Compute& compute) noexcept {
    if (status_.ok()) Note(compute(given_.context()));
    return Report();
  }

  // Ends a call: writes the message and returns the code.
  rg_status Report() noexcept;

 private:
  // Checks an output and zeroes it. Returns whether it can be written to.
  bool Claim(const Place& place, rg_output* output) noexcept;

  const std::string_view function_;
  rg_error error_{};
  rg_output* outputs_[kMaxOutputs] = {};
  GivenContext given_;
  Status status_;
};

}  // namespace raggrad::capi
