// Memory of one call. Scratch of up to a few KiB lies on the stack: a tiny segment gradient asks for eight pieces, and
// taking them from the heap would be a tenth of its time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "raggrad/core/allocator.h"
#include "raggrad/core/tensor.h"
#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"
#include "raggrad/ops/sparse_segment/indexed_slices.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::python {

// Outputs, and scratch for which there is no room, come from `upstream`. `limit`: the most bytes that one request may
// have, also of the room.
class CallMemory final : public Allocator {
 public:
  CallMemory(Allocator& upstream, size_t limit) noexcept : upstream_(upstream), limit_(limit) {}

  void* Allocate(size_t bytes) noexcept override {
    const size_t left = sizeof(room_) - used_;
    if (bytes > left || bytes > limit_) return upstream_.Allocate(bytes);
    void* const block = room_ + used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return block;
  }
  void* AllocateOutput(const OutputSpec& spec) noexcept override { return upstream_.Allocate(spec.bytes); }
  void Deallocate(void* pointer, size_t bytes) noexcept override {
    const auto place = reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(room_);
    if (place >= sizeof(room_)) return upstream_.Deallocate(pointer, bytes);
    if (place + (bytes + kAlignment - 1) / kAlignment * kAlignment == used_) used_ = place;  // the latest block
  }

  // Lets an output outlive this object.
  void Release(Tensor& output) noexcept {
    if (output.data() == nullptr) return;
    const TensorView view = output.view();
    const size_t bytes = output.bytes();
    output = Tensor(&upstream_, output.release(), bytes, view.dtype, view.shape, view.device);
  }

 private:
  Allocator& upstream_;
  const size_t limit_;
  size_t used_ = 0;
  alignas(kAlignment) std::byte room_[4096];
};

// The tensors of an operator's outputs, for operators that tiny calls are likely to call.
inline std::array<Tensor*, 1> TensorsOf(Tensor& output) noexcept { return {&output}; }
inline std::array<Tensor*, 2> TensorsOf(SparseSegmentGradV2Output& outputs) noexcept {
  return {&outputs.output, &outputs.sorted_unique_indices};
}
inline std::array<Tensor*, 2> TensorsOf(IndexedSlices& slices) noexcept { return {&slices.values, &slices.indices}; }
inline std::array<Tensor*, 2> TensorsOf(FillEmptyRowsGradOutput& outputs) noexcept {
  return {&outputs.d_values, &outputs.d_default_value};
}

}  // namespace raggrad::python
