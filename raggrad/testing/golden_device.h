// Golden cases with their operands in device memory.
#pragma once

#include <functional>
#include <string_view>

#include "raggrad/core/allocator.h"
#include "raggrad/testing/golden.h"

namespace raggrad::testing {

// Why a case cannot be run with its operands in device memory; "" if it can.
std::string_view WhyNotOnDevice(const GoldenCase& golden);

// Copies inputs and attributes of such a case, the inputs to device memory. Operands that operators always take from
// host memory stay there: values that decide about shapes, and the splits of ragged elements. This and WithHostCopy
// throw GoldenError if a copy cannot be made.
GoldenCase CopyToDevice(const GoldenCase& golden);

// Calls f with a copy of the output in host memory.
void WithHostCopy(const GoldenView& output, const std::function<void(const GoldenView&)>& f);

// Device memory that refuses requests larger than `limit`.
class LimitedDeviceMemory final : public Allocator {
 public:
  explicit LimitedDeviceMemory(size_t limit);
  void* Allocate(size_t bytes) noexcept override { return bytes > limit_ ? nullptr : pool_->Allocate(bytes); }
  void Deallocate(void* pointer, size_t bytes) noexcept override { pool_->Deallocate(pointer, bytes); }

 private:
  const size_t limit_;
  Allocator* const pool_;
};

}  // namespace raggrad::testing
