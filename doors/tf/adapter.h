// The adapter between TensorFlow and raggrad. It answers four questions for one call of an operator: how a tensor
// becomes a view, where outputs and scratch come from, which pool of threads, and how a Status becomes TensorFlow's.
// There are no streams: these kernels are for the CPU.
//
//   Call call(context);
//   call.Finish(raggrad::SparseSegmentMean(call.View(0), call.View(1), call.View(2), call.context()));
//
// It uses only TensorFlow's C interface, so one binary serves every TensorFlow from 2.20 on.
#pragma once

#include <array>
#include <memory>
#include <tuple>

#include "raggrad/core/scratch.h"
#include "raggrad/raggrad.h"
#include "tensorflow/c/kernels.h"

namespace raggrad::tf_door {

struct Deleter {
  void operator()(TF_Tensor* tensor) const noexcept { TF_DeleteTensor(tensor); }
  void operator()(TF_Status* status) const noexcept { TF_DeleteStatus(status); }
};
using TfTensor = std::unique_ptr<TF_Tensor, Deleter>;
using TfStatus = std::unique_ptr<TF_Status, Deleter>;

// Scratch. TensorFlow's own allocator would give fresh pages to every call, whose first touch costs more than the
// operator.
PoolAllocator& HostScratch() noexcept;

// Whether the machine and the container have that much memory. TensorFlow takes what Linux grants, and Linux kills a
// process that writes to more memory than there is. Asking takes up to 100 us, so only requests are checked whose first
// touch takes a hundred times as long.
bool MemoryAllows(size_t bytes) noexcept;

// The threads that calls use: the library's pool. SetThreads replaces it by one of that many threads, 0 by the
// library's again. TensorFlow's C interface does not offer its own.
Executor& Threads() noexcept;
void SetThreads(int count) noexcept;

// Makes it the error of the kernel's call.
void Fail(TF_OpKernelContext* context, const Status& status) noexcept;

// The tensors of an operator's result, in TensorFlow's order.
inline auto Parts(Tensor& o) { return std::tie(o); }
inline auto Parts(SparseSegmentGradV2Output& o) { return std::tie(o.output, o.sorted_unique_indices); }
inline auto Parts(FillEmptyRowsGradOutput& o) { return std::tie(o.d_values, o.d_default_value); }
inline auto Parts(SparseFillEmptyRowsOutput& o) {
  return std::tie(o.output_indices, o.output_values, o.empty_row_indicator, o.reverse_index_map);
}
inline auto Parts(RaggedFillEmptyRowsOutput& o) {
  return std::tie(o.output_value_rowids, o.output_values, o.empty_row_indicator, o.reverse_index_map);
}
inline auto Parts(SparseSliceOutput& o) { return std::tie(o.output_indices, o.output_values, o.output_shape); }

// One call of an operator that moves or sums elements. Outputs are written into TensorFlow's memory.
//
// TensorFlow's strings own their characters, so the engine cannot write them. It moves their numbers instead: the
// elements of all string operands are numbered 0, 1, 2, ..., and Finish copies the string of every number that arrived.
// That takes 8 bytes per string, and its characters are copied once.
class Call final : private Allocator {
 public:
  explicit Call(TF_OpKernelContext* context) noexcept;
  ~Call() override = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const Context& context() const noexcept { return context_; }

  // Input number `index`, without a copy. An input that TensorFlow does not hand out makes Finish fail.
  TensorView View(int index) noexcept;

  // Hands the outputs to TensorFlow, or the error.
  template <class T>
  void Finish(Result<T> result) noexcept {
    if (!input_error_.ok()) return Fail(tf_, input_error_);
    if (!result.ok()) return Fail(tf_, result.status());
    Status status;
    std::apply(
        [&](auto&... part) {
          int i = 0;
          ((status = status.ok() ? Hand(i++, part) : status), ...);
        },
        Parts(*result));
    if (!status.ok()) Fail(tf_, status);
  }

 private:
  static constexpr size_t kMost = 5;  // inputs or outputs of an operator

  struct Strings {
    const TF_TString* data = nullptr;
    int64_t first = 0;  // the number of the first one
    int64_t count = 0;
    Scratch<int64_t> numbers;
  };

  void* Allocate(size_t bytes) noexcept override { return HostScratch().Allocate(bytes); }
  void Deallocate(void* data, size_t bytes) noexcept override;
  void* AllocateOutput(const OutputSpec& spec) noexcept override;

  TF_Tensor* NewOutput(int index, const Shape& shape, size_t bytes) noexcept;
  TensorView NumbersOf(int index) noexcept;
  const TF_TString& StringOf(int64_t number) const noexcept;
  Status Hand(int index, Tensor& output) noexcept;
  Status HandStrings(int index, const Tensor& numbers) noexcept;

  TF_OpKernelContext* const tf_;
  const TfStatus status_;
  Context context_;
  std::array<TfTensor, kMost> inputs_;
  std::array<TfTensor, kMost> outputs_;
  std::array<Strings, kMost> strings_;
  int64_t num_strings_ = 0;
  Status input_error_;
};

}  // namespace raggrad::tf_door
