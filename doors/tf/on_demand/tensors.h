// TensorFlow's tensors as operands and outputs of raggrad's C interface.
//
// This folder is compiled on the user's machine, for the TensorFlow found there and in its C++17
// (python/raggrad/tf/on_demand.py). So it uses raggrad's C interface, which every compiler reads alike.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "raggrad/capi/raggrad_c.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace raggrad_tf {

// Element types that raggrad has. Kernels of TensorFlow serve the others.
extern const absl::Span<const tensorflow::DataType> kTypes;

// Whether a request for memory can be granted (doors/tf/adapter.h). Set before the first call.
extern bool (*memory_allows)(size_t bytes);

tensorflow::TensorShape ShapeOf(const int64_t* dims, int32_t rank);

// A copy of an operand or output of raggrad's. Fails for lack of memory.
absl::Status Copy(const rg_tensor& from, tensorflow::Tensor* to);

// A struct of raggrad's C interface, as RG_INIT makes it in C.
template <class Struct>
Struct Init() {
  Struct made = {};
  made.struct_size = sizeof made;
  return made;
}

// Operands, as long as this lives. They keep the tensors' memory. Strings take 16 bytes of scratch each; all other
// elements are read where they lie.
class Operands {
 public:
  const rg_tensor* Add(const tensorflow::Tensor& tensor);

 private:
  struct Operand {
    tensorflow::Tensor tensor;
    rg_tensor view;
    absl::InlinedVector<int64_t, 4> shape;
    std::vector<rg_string> strings;
  };
  std::deque<Operand> operands_;  // does not move what it holds
};

// A context whose outputs are tensors of TensorFlow's. Any thread may use it.
class Outputs {
 public:
  // With TensorFlow's threads, or else with raggrad's.
  explicit Outputs(tensorflow::OpKernelContext* tf = nullptr);
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;

  const rg_context* context() const { return &context_; }

  // The tensor of an output; the output owns nothing afterwards. Strings are copied, all other elements lie in it.
  absl::Status Take(rg_output* output, tensorflow::Tensor* tensor);

  // The tensor whose elements begin there, which is not for strings.
  tensorflow::Tensor Find(const void* data);

 private:
  static void* Allocate(void* outputs, size_t bytes, const rg_output_spec* spec);
  static void Deallocate(void* outputs, void* data, size_t bytes);
  static void ParallelFor(void* outputs, int64_t tasks, rg_task task, void* argument);

  rg_context context_ = Init<rg_context>();
  tensorflow::thread::ThreadPool* threads_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<const void*, tensorflow::Tensor> tensors_;  // by where their elements begin
};

// A message of raggrad's, and the status that it makes.
class ErrorText {
 public:
  rg_error* get() { return &error_; }
  absl::Status StatusOf(rg_status code) const {
    return {static_cast<absl::StatusCode>(code), static_cast<const char*>(text_)};
  }

 private:
  char text_[1024] = {};
  rg_error error_ = {sizeof(rg_error), text_, sizeof text_};
};

}  // namespace raggrad_tf
