// Checks all ids of a forward in device memory. Internal to the family.
#pragma once

#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_segment/forward/forward_checks.h"

namespace raggrad::sparse_segment::on_cuda {

// The words that CheckKernel reports.
struct Found {
  static constexpr int kFault = 0;  // not 0 if an index is out of range, or segment ids do not ascend from 0
  static constexpr int kLast = 1;   // the last segment id
  static constexpr int kWords = 2;
};

template <class Idx, class Seg>
__global__ void CheckKernel(const Idx* indices, const Seg* segment_ids, int64_t n, int64_t table_rows,
                            uint64_t* found) {
  const int64_t i = cuda::GlobalThread();
  if (i >= n) return;
  const int64_t index = indices[i], segment = segment_ids[i];
  const int64_t before = i == 0 ? 0 : segment_ids[i - 1];
  if (index < 0 || index >= table_rows || segment < before) found[Found::kFault] = 1;
  if (i == n - 1) found[Found::kLast] = static_cast<uint64_t>(segment);
}

inline Result<Tensor> ToHost(const cuda::UncapturedCall& call, const TensorView& view) noexcept {
  Result<Tensor> copy = raggrad::AllocateOutput(Context{}, 0, view.dtype, view.shape);
  if (!copy.ok()) return copy;
  const cudaError_t error =
      cudaMemcpyAsync(copy->data(), view.data, copy->bytes(), cudaMemcpyDeviceToHost, call.stream);
  if (Status s = cuda::ToStatus(error, "ids could not be read"); !s.ok()) return s;
  if (Status s = call.AwaitAll("ids could not be read"); !s.ok()) return s;
  return copy;
}

// The CPU's error for bad ids. Copies the ids to the host, where the CPU's code finds the fault to report.
template <class Idx, class Seg>
Status Fault(const cuda::UncapturedCall& call, const ForwardProblem& p, int64_t num_segments) noexcept {
  const Result<Tensor> indices = ToHost(call, p.indices);
  if (!indices.ok()) return indices.status();
  const Result<Tensor> segment_ids = ToHost(call, p.segment_ids);
  if (!segment_ids.ok()) return segment_ids.status();
  ForwardProblem on_host = p;
  on_host.indices = indices->view();
  on_host.segment_ids = segment_ids->view();
  return FirstFault<Idx, Seg>(on_host, num_segments);
}

template <class Idx, class Seg>
Status Look(const cuda::UncapturedCall& call, const ForwardProblem& p, std::span<uint64_t> found) noexcept {
  Result<Scratch<uint64_t>> words = Scratch<uint64_t>::Make(call.device_memory(), Found::kWords);
  if (!words.ok()) return words.status();
  if (Status s = call.Fill(words->data(), 0, Found::kWords * sizeof(uint64_t)); !s.ok()) return s;
  constexpr int kThreads = cuda::kTuning.item_threads_per_block;
  if (Status s = call.Launch(CheckKernel<Idx, Seg>, cuda::Blocks(p.n(), kThreads), kThreads, p.indices.As<Idx>(),
                             p.segment_ids.As<Seg>(), p.n(), p.data.dim(0), words->data());
      !s.ok()) {
    return s;
  }
  return call.ReadBack(words->data(), found);
}

}  // namespace raggrad::sparse_segment::on_cuda
