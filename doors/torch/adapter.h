// The adapter between torch and raggrad. It answers five questions for one call of an operator: how a tensor becomes a
// view, where outputs and scratch come from, which stream is used, which pool of threads, and how a Status becomes an
// exception.
//
//   Call call("sparse_segment", data, accumulation);
//   return call.Take(call.Get(raggrad::SparseSegment(..., call.View(data), ..., call.context())));
//
// It uses only torch's stable C++ interface, so one binary serves every torch from 2.10 on.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "raggrad/raggrad.h"

namespace raggrad::torch_door {

using TorchTensor = ::torch::stable::Tensor;
using MaybeTensor = std::optional<TorchTensor>;
using MaybeText = std::optional<std::string>;
using TwoTensors = std::tuple<TorchTensor, TorchTensor>;

// Throws std::runtime_error, which torch turns into Python's RuntimeError: "<code>: raggrad::<operator>: <text>". The
// Python functions of the door read the code.
[[noreturn]] void Throw(std::string_view op, const Status& status);

// Torch tensors that hold the outputs of a call, and its scratch.
class CallMemory;

class Call {
 public:
  // `like` decides about the device. `op` must outlive the call.
  Call(std::string_view op, const TorchTensor& like, const MaybeText& accumulation = std::nullopt);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const Context& context() const noexcept { return context_; }

  // The tensor as it lies in memory. One that is not row-major is copied; the call keeps the copy.
  TensorView View(const TorchTensor& tensor);
  // A tensor that the operator changes. It must be row-major.
  MutableTensorView Mutable(const TorchTensor& tensor, std::string_view name);

  void Check(const Status& status) const {
    if (!status.ok()) Throw(op_, status);
  }
  template <class T>
  T Get(Result<T> result) const {
    if (!result.ok()) Throw(op_, result.status());
    return *std::move(result);
  }

  // Says how much scratch the call takes, so that its small blocks in device memory lie in one tensor.
  void ExpectScratch(int64_t bytes) noexcept;

  // The torch tensor in whose memory an output lies.
  TorchTensor Take(Tensor output);

 private:
  std::string_view op_;
  Context context_;
  std::unique_ptr<CallMemory> memory_;
  std::deque<TorchTensor> copies_;  // row-major copies of operands
};

// "sum", "mean", "sqrtn".
SegmentCombiner CombinerOf(std::string_view op, std::string_view argument, std::string_view name);

}  // namespace raggrad::torch_door
