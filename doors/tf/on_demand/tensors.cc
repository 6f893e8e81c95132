#include "tensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/lib/core/threadpool.h"

namespace raggrad_tf {

using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

namespace {

constexpr DataType kAllTypes[] = {
    tensorflow::DT_HALF,      tensorflow::DT_BFLOAT16,   tensorflow::DT_FLOAT,  tensorflow::DT_DOUBLE,
    tensorflow::DT_INT8,      tensorflow::DT_INT16,      tensorflow::DT_INT32,  tensorflow::DT_INT64,
    tensorflow::DT_UINT8,     tensorflow::DT_UINT16,     tensorflow::DT_UINT32, tensorflow::DT_UINT64,
    tensorflow::DT_COMPLEX64, tensorflow::DT_COMPLEX128, tensorflow::DT_BOOL,   tensorflow::DT_STRING,
    tensorflow::DT_QINT8,     tensorflow::DT_QUINT8,     tensorflow::DT_QINT16, tensorflow::DT_QUINT16,
    tensorflow::DT_QINT32,
};

}  // namespace

const absl::Span<const DataType> kTypes = kAllTypes;
bool (*memory_allows)(size_t bytes) = nullptr;

TensorShape ShapeOf(const int64_t* dims, int32_t rank) {
  return TensorShape(absl::Span<const int64_t>(dims, static_cast<size_t>(rank)));
}

absl::Status Copy(const rg_tensor& from, Tensor* to) {
  *to = Tensor(tensorflow::cpu_allocator(), static_cast<DataType>(from.dtype), ShapeOf(from.shape, from.rank));
  if (to->NumElements() == 0) return {};
  if (!to->IsInitialized()) return absl::ResourceExhaustedError("no memory for a copy");
  if (from.dtype == RG_STRING) {
    const auto* const strings = static_cast<const rg_string*>(from.data);
    auto* const to_strings = static_cast<tstring*>(to->data());
    for (int64_t i = 0; i < to->NumElements(); ++i) to_strings[i].assign(strings[i].data, strings[i].size);
  } else {
    std::memcpy(to->data(), from.data, to->TotalBytes());
  }
  return {};
}

const rg_tensor* Operands::Add(const Tensor& tensor) {
  Operand& operand = operands_.emplace_back();
  operand.tensor = tensor;
  for (const auto dim : tensor.shape()) operand.shape.push_back(dim.size);
  const void* data = tensor.data();
  if (tensor.dtype() == tensorflow::DT_STRING) {
    const auto* const strings = static_cast<const tstring*>(data);
    operand.strings.resize(static_cast<size_t>(tensor.NumElements()));
    std::transform(strings, strings + tensor.NumElements(), operand.strings.begin(), [](const tstring& string) {
      return rg_string{string.data(), string.size()};
    });
    data = operand.strings.data();
  }
  operand.view = {sizeof(rg_tensor), data, tensor.dtype(), RG_CPU, 0, tensor.dims(), operand.shape.data()};
  return &operand.view;
}

Outputs::Outputs(tensorflow::OpKernelContext* tf) {
  context_.user = this;
  context_.allocate = Allocate;
  context_.deallocate = Deallocate;
  if (tf == nullptr) return;
  threads_ = tf->device()->tensorflow_cpu_worker_threads()->workers;
  context_.parallel_for = ParallelFor;
  context_.num_workers = threads_->NumThreads();
}

absl::Status Outputs::Take(rg_output* output, Tensor* tensor) {
  absl::Status status;
  if (output->data != nullptr && output->dtype != RG_STRING) {
    *tensor = Find(output->data);
  } else {
    status = Copy(rg_output_view(output), tensor);
  }
  rg_output_free(&context_, output);
  return status;
}

Tensor Outputs::Find(const void* data) {
  const std::lock_guard lock(mutex_);
  return tensors_.at(data);
}

void* Outputs::Allocate(void* outputs, size_t bytes, const rg_output_spec* spec) {
  if (!memory_allows(bytes)) return nullptr;
  if (spec == nullptr || spec->dtype == RG_STRING) {
    return tensorflow::cpu_allocator()->AllocateRaw(RG_ALIGNMENT, bytes);
  }
  Tensor tensor(tensorflow::cpu_allocator(), static_cast<DataType>(spec->dtype), ShapeOf(spec->shape, spec->rank));
  if (!tensor.IsInitialized()) return nullptr;
  void* const data = tensor.data();
  auto* const self = static_cast<Outputs*>(outputs);
  const std::lock_guard lock(self->mutex_);
  self->tensors_.emplace(data, std::move(tensor));
  return data;
}

void Outputs::Deallocate(void* outputs, void* data, size_t /*bytes*/) {
  Tensor dropped;  // its memory is freed after the lock
  auto* const self = static_cast<Outputs*>(outputs);
  const std::lock_guard lock(self->mutex_);
  const auto found = self->tensors_.find(data);
  if (found == self->tensors_.end()) return tensorflow::cpu_allocator()->DeallocateRaw(data);
  dropped = std::move(found->second);
  self->tensors_.erase(found);
}

void Outputs::ParallelFor(void* outputs, int64_t tasks, rg_task task, void* argument) {
  static_cast<Outputs*>(outputs)->threads_->ParallelFor(tasks, [=](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) task(argument, t);
  });
}

}  // namespace raggrad_tf
