// The operators of TensorFlow that raggrad has kernels for.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "raggrad/core/dtype.h"
#include "tensorflow/c/kernels.h"

namespace raggrad::tf_door {

struct Operator {
  const char* name;
  std::span<const DType> types;  // of the attribute T; TensorFlow's kernels serve the others
  void (*compute)(void* kernel, TF_OpKernelContext* context);
  std::atomic<int64_t>* calls;  // how many raggrad answered
};

std::span<const Operator> Operators() noexcept;

}  // namespace raggrad::tf_door
