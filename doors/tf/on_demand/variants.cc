// Kernels of the three variant operators.
#include "operators.h"
#include "tensorflow/core/kernels/ragged_tensor_variant.h"
#include "tensors.h"

namespace raggrad_tf {
namespace {

using tensorflow::DataType;
using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::RaggedTensorVariant;
using tensorflow::Tensor;
using tensorflow::Variant;

// The elements of a variant tensor as an operand. An element that is no ragged tensor counts as missing. Takes 250
// bytes per element and 150 for each of its splits.
class Elements {
 public:
  Elements(const Tensor& encoded, bool with_splits) {
    const auto variants = encoded.flat<Variant>();
    pointers_.resize(static_cast<size_t>(variants.size()));
    for (int64_t i = 0; i < variants.size(); ++i) {
      const auto* const element = variants(i).get<RaggedTensorVariant>();
      if (element != nullptr) pointers_[static_cast<size_t>(i)] = Add(*element, with_splits);
    }
    for (const auto dim : encoded.shape()) shape_.push_back(dim.size);
    view_ = {sizeof view_, encoded.dims(), shape_.data(), variants.size(), pointers_.data()};
  }

  const rg_variant_array* view() const { return &view_; }

 private:
  struct Element {
    rg_ragged view;
    std::vector<const rg_tensor*> splits;
  };

  const rg_ragged* Add(const RaggedTensorVariant& ragged, bool with_splits) {
    Element& element = elements_.emplace_back();
    if (with_splits) {
      for (const Tensor& splits : ragged.nested_splits()) element.splits.push_back(operands_.Add(splits));
    }
    element.view = {sizeof(rg_ragged), operands_.Add(ragged.values()), element.splits.data(),
                    static_cast<int32_t>(element.splits.size())};
    return &element.view;
  }

  Operands operands_;
  std::deque<Element> elements_;
  std::vector<const rg_ragged*> pointers_;
  absl::InlinedVector<int64_t, 4> shape_;
  rg_variant_array view_;
};

class ToVariantGradient : public OpKernel {
 public:
  explicit ToVariantGradient(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("Tvalues", &type_));
  }

  void Compute(OpKernelContext* tf) override {
    CountCall("RaggedTensorToVariantGradient");
    const Elements elements(tf->input(0), /*with_splits=*/false);
    Operands operands;
    Outputs outputs(tf);
    auto gradient = Init<rg_output>();
    ErrorText error;
    OP_REQUIRES_OK(tf, error.StatusOf(rg_ragged_tensor_to_variant_grad(
                           outputs.context(), elements.view(), operands.Add(tf->input(1)), operands.Add(tf->input(2)),
                           type_, &gradient, error.get())));
    Tensor tensor;
    OP_REQUIRES_OK(tf, outputs.Take(&gradient, &tensor));
    tf->set_output(0, std::move(tensor));
  }

 private:
  DataType type_;
};

class FromVariant : public OpKernel {
 public:
  explicit FromVariant(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("input_ragged_rank", &input_rank_));
    OP_REQUIRES_OK(construction, construction->GetAttr("output_ragged_rank", &output_rank_));
    OP_REQUIRES_OK(construction, construction->GetAttr("Tvalues", &values_type_));
    OP_REQUIRES_OK(construction, construction->GetAttr("Tsplits", &splits_type_));
  }

  void Compute(OpKernelContext* tf) override {
    CountCall("RaggedTensorFromVariant");
    const Elements elements(tf->input(0), /*with_splits=*/true);
    Outputs outputs(tf);
    std::vector<rg_output> parts(static_cast<size_t>(output_rank_) + 1, Init<rg_output>());
    std::vector<rg_output*> pointers;
    for (rg_output& part : parts) pointers.push_back(&part);  // the splits, and then the values
    ErrorText error;
    OP_REQUIRES_OK(tf, error.StatusOf(rg_ragged_tensor_from_variant(outputs.context(), elements.view(), input_rank_,
                                                                    output_rank_, values_type_, splits_type_,
                                                                    pointers.data(), pointers.back(), error.get())));
    for (int i = 0; i <= output_rank_; ++i) {
      Tensor tensor;
      OP_REQUIRES_OK(tf, outputs.Take(pointers[static_cast<size_t>(i)], &tensor));
      tf->set_output(i, std::move(tensor));
    }
  }

 private:
  int64_t input_rank_;
  int64_t output_rank_;
  DataType values_type_;
  DataType splits_type_;
};

// The values of elements are slices of one tensor, as long as they begin where TensorFlow's kernels can read them;
// others are copied once more.
class ToVariant : public OpKernel {
 public:
  explicit ToVariant(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("batched_input", &batched_));
  }

  void Compute(OpKernelContext* tf) override {
    CountCall("RaggedTensorToVariant");
    OpInputList splits;
    OP_REQUIRES_OK(tf, tf->input_list("rt_nested_splits", &splits));
    Operands operands;
    std::vector<const rg_tensor*> levels;
    for (const Tensor& level : splits) levels.push_back(operands.Add(level));
    const rg_tensor* const values = operands.Add(tf->input(splits.size()));

    Outputs outputs(tf);
    auto pieces = Init<rg_variant_output>();
    ErrorText error;
    OP_REQUIRES_OK(tf, error.StatusOf(rg_ragged_tensor_to_variant(outputs.context(), levels.data(), splits.size(),
                                                                  values, batched_, &pieces, error.get())));
    const bool sliced = values->dtype != RG_STRING && pieces.blocks[0].data != nullptr;
    const absl::Status status = Hand(tf, *pieces.array, sliced ? outputs.Find(pieces.blocks[0].data) : Tensor());
    rg_variant_output_free(outputs.context(), &pieces);
    OP_REQUIRES_OK(tf, status);
  }

 private:
  static absl::Status Hand(OpKernelContext* tf, const rg_variant_array& pieces, const Tensor& joined) {
    Tensor* encoded = nullptr;
    TF_RETURN_IF_ERROR(tf->allocate_output(0, ShapeOf(pieces.shape, pieces.rank), &encoded));
    auto variants = encoded->flat<Variant>();
    for (int64_t i = 0; i < pieces.num_elements; ++i) {
      const rg_ragged& piece = *pieces.elements[i];
      RaggedTensorVariant element;
      for (int32_t level = 0; level < piece.num_splits; ++level) {
        Tensor splits;
        TF_RETURN_IF_ERROR(Copy(*piece.nested_splits[level], &splits));
        element.append_splits(splits);
      }
      Tensor values;
      if (!SliceOf(joined, *piece.values, &values)) TF_RETURN_IF_ERROR(Copy(*piece.values, &values));
      element.set_values(values);
      variants(i) = std::move(element);
    }
    return {};
  }

  // Makes the values of an element a slice of all values, if it can be one.
  static bool SliceOf(const Tensor& joined, const rg_tensor& values, Tensor* slice) {
    const auto shape = ShapeOf(values.shape, values.rank);
    if (joined.dims() == 0 || joined.NumElements() == 0 || shape.num_elements() == 0) return false;
    const auto row_bytes = joined.TotalBytes() / static_cast<size_t>(joined.dim_size(0));
    const auto row_elements = joined.NumElements() / joined.dim_size(0);
    const auto offset = static_cast<size_t>(static_cast<const char*>(values.data) - joined.tensor_data().data());
    const auto begin = static_cast<int64_t>(offset / row_bytes);
    const Tensor rows = joined.Slice(begin, begin + shape.num_elements() / row_elements);
    return rows.IsAligned() && slice->CopyFrom(rows, shape);
  }

  bool batched_;
};

#define CPU_KERNEL(name) Name(name).Device(tensorflow::DEVICE_CPU).TypeConstraint("Tvalues", kTypes).Priority(1)
REGISTER_KERNEL_BUILDER(CPU_KERNEL("RaggedTensorToVariant"), ToVariant);
REGISTER_KERNEL_BUILDER(CPU_KERNEL("RaggedTensorFromVariant"), FromVariant);
REGISTER_KERNEL_BUILDER(CPU_KERNEL("RaggedTensorToVariantGradient"), ToVariantGradient);
#undef CPU_KERNEL

}  // namespace
}  // namespace raggrad_tf
