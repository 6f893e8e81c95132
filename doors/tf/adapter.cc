#include "adapter.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <string>

#include "raggrad/core/error_text.h"
#include "raggrad/core/first_use.h"
#include "raggrad/core/huge_pages.h"
#include "raggrad/core/limits.h"
#include "tsl/platform/ctstring.h"

namespace raggrad::tf_door {
namespace {

std::atomic<Executor*> threads{nullptr};

Shape ShapeOf(const TF_Tensor* tensor) noexcept {
  std::array<int64_t, Shape::kMaxRank> dims;
  const int rank = std::min(TF_NumDims(tensor), Shape::kMaxRank);
  for (int i = 0; i < rank; ++i) dims[static_cast<size_t>(i)] = TF_Dim(tensor, i);
  return Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(rank)));
}

// Numbers of types are TensorFlow's in raggrad, too.
TensorView ViewOf(const TF_Tensor* tensor) noexcept {
  return {TF_TensorData(tensor), static_cast<DType>(TF_TensorType(tensor)), ShapeOf(tensor), {}};
}

Status FromTensorFlow(const TF_Status* status) noexcept {
  return {static_cast<Code>(TF_GetCode(status)), TF_Message(status)};
}

}  // namespace

PoolAllocator& HostScratch() noexcept {
  static constinit FirstUse<PoolAllocator> pool;
  return pool.Get([] { return PoolAllocator(); });
}

bool MemoryAllows(size_t bytes) noexcept {
  constexpr size_t kLarge = size_t{64} << 20;
  return bytes < kLarge || bytes <= AvailableMemory();
}

Executor& Threads() noexcept {
  Executor* const own = threads.load(std::memory_order_acquire);
  return own != nullptr ? *own : DefaultExecutor();
}

// A pool that was replaced is not destroyed, because calls may be using it.
void SetThreads(int count) noexcept {
  threads.store(count > 0 ? MakeThreadPool(count).release() : nullptr, std::memory_order_release);
}

void Fail(TF_OpKernelContext* context, const Status& status) noexcept {
  const TfStatus error(TF_NewStatus());
  TF_SetStatus(error.get(), static_cast<TF_Code>(status.code()), std::string(status.message()).c_str());
  TF_OpKernelContext_Failure(context, error.get());
}

Call::Call(TF_OpKernelContext* context) noexcept : tf_(context), status_(TF_NewStatus()) {
  context_.allocator = this;
  context_.executor = &Threads();
}

TensorView Call::View(int index) noexcept {
  TF_Tensor* input = nullptr;
  TF_GetInput(tf_, index, &input, status_.get());
  if (TF_GetCode(status_.get()) != TF_OK) {
    input_error_ = FromTensorFlow(status_.get());
    return {};
  }
  inputs_[static_cast<size_t>(index)].reset(input);
  return TF_TensorType(input) == TF_STRING ? NumbersOf(index) : ViewOf(input);
}

TensorView Call::NumbersOf(int index) noexcept {
  const TF_Tensor* const input = inputs_[static_cast<size_t>(index)].get();
  const int64_t count = TF_TensorElementCount(input);
  Result<Scratch<int64_t>> numbers = Scratch<int64_t>::Make(HostScratch(), count);
  if (!numbers.ok()) {
    input_error_ = numbers.status();
    return {};
  }
  Strings& strings = strings_[static_cast<size_t>(index)];
  strings = {static_cast<const TF_TString*>(TF_TensorData(input)), num_strings_, count, *std::move(numbers)};
  std::iota(strings.numbers.data(), strings.numbers.data() + count, num_strings_);
  num_strings_ += count;
  return TensorView::Of(strings.numbers.data(), ShapeOf(input));
}

const TF_TString& Call::StringOf(int64_t number) const noexcept {
  const Strings& operand = *std::ranges::find_if(strings_, [=](const Strings& strings) {
    return number >= strings.first && number < strings.first + strings.count;
  });
  return operand.data[number - operand.first];
}

void Call::Deallocate(void* data, size_t bytes) noexcept {
  const bool is_output = std::ranges::any_of(outputs_, [=](const TfTensor& output) {
    return output != nullptr && TF_TensorData(output.get()) == data;  // TensorFlow drops the outputs of a failed call
  });
  if (!is_output) HostScratch().Deallocate(data, bytes);
}

void* Call::AllocateOutput(const OutputSpec& spec) noexcept {
  if (TF_ExpectedOutputDataType(tf_, spec.index) == TF_STRING) return Allocate(spec.bytes);  // numbers of strings
  const TF_Tensor* const output = MemoryAllows(spec.bytes) ? NewOutput(spec.index, spec.shape, spec.bytes) : nullptr;
  if (output == nullptr) return nullptr;
  void* const data = TF_TensorData(output);
  AskForHugePages(data, spec.bytes);
  return data;
}

TF_Tensor* Call::NewOutput(int index, const Shape& shape, size_t bytes) noexcept {
  TfTensor& output = outputs_[static_cast<size_t>(index)];
  output.reset(TF_AllocateOutput(tf_, index, TF_ExpectedOutputDataType(tf_, index), shape.dims().data(), shape.rank(),
                                 bytes, status_.get()));
  return output.get();
}

Status Call::Hand(int index, Tensor& output) noexcept {
  if (TF_ExpectedOutputDataType(tf_, index) == TF_STRING) return HandStrings(index, output);
  if (output.release() != nullptr) return {};  // it lies in TensorFlow's memory already
  return NewOutput(index, output.shape(), 0) != nullptr ? Status() : FromTensorFlow(status_.get());
}

Status Call::HandStrings(int index, const Tensor& numbers) noexcept {
  const int64_t count = numbers.shape().NumElements().value_or(0);
  const TF_Tensor* const output = NewOutput(index, numbers.shape(), static_cast<size_t>(count) * sizeof(TF_TString));
  if (output == nullptr) return FromTensorFlow(status_.get());
  auto* const to = static_cast<TF_TString*>(TF_TensorData(output));
  for (int64_t i = 0; i < count; ++i) {
    const TF_TString& from = StringOf(numbers.As<int64_t>()[i]);
    TF_TString_Copy(&to[i], TF_TString_GetDataPointer(&from), TF_TString_GetSize(&from));
  }
  return {};
}

}  // namespace raggrad::tf_door
