// The operators on variant arrays.
#include <algorithm>
#include <utility>

#include "raggrad/capi/c_call.h"
#include "raggrad/core/error_text.h"
#include "raggrad/raggrad.h"

using namespace raggrad;  // NOLINT: everything here belongs to C
using raggrad::capi::CCall;
using raggrad::capi::ElementViews;
using raggrad::capi::Store;

namespace {

// Lays out arrays of several types in one block: first counts them, then allocates and hands out their places.
class Block {
 public:
  template <class T>
  void Count(int64_t items) noexcept {
    constexpr size_t kSize = sizeof(T);  // NOLINT(bugprone-sizeof-expression): some are pointers
    size_t bytes = 0;
    overflow_ |= __builtin_mul_overflow(static_cast<size_t>(items), kSize, &bytes);
    overflow_ |= __builtin_add_overflow(size_, bytes, &size_);
  }
  Result<Tensor> Allocate(const Context& ctx) noexcept {
    if (overflow_) return Status(Code::kResourceExhausted, "no memory for the description of the elements");
    Result<Tensor> memory = AllocateOutput(ctx, 2, DType::kUInt8, Shape{static_cast<int64_t>(size_)});
    if (memory.ok()) next_ = memory->As<std::byte>();
    return memory;
  }
  template <class T>
  T* Take(int64_t items) noexcept {
    static_assert(alignof(T) <= alignof(int64_t));  // what follows stays aligned
    T* const place = reinterpret_cast<T*>(next_);
    next_ = reinterpret_cast<std::byte*>(place + items);
    return place;
  }

 private:
  size_t size_ = 0;
  bool overflow_ = false;
  std::byte* next_ = nullptr;
};

const rg_tensor* Describe(const TensorView& view, Block& block) noexcept {
  rg_tensor* const tensor = block.Take<rg_tensor>(1);
  int64_t* const shape = block.Take<int64_t>(view.rank());
  std::ranges::copy(view.shape.dims(), shape);
  *tensor = {sizeof(rg_tensor),
             view.data,
             static_cast<int32_t>(view.dtype),
             static_cast<int32_t>(view.device.kind),
             view.device.number,
             view.rank(),
             shape};
  return tensor;
}

// A variant array and its description in C structs. All elements have the same number of splits and values of one rank.
struct Described {
  VariantArray variant;
  Tensor memory;
  const rg_variant_array* array = nullptr;
};

Result<Described> Describe(Result<VariantArray> variant, const Context& ctx) noexcept {
  if (!variant.ok()) return variant.status();
  const auto elements = variant->elements();
  const auto n = static_cast<int64_t>(elements.size());
  const int64_t levels = n == 0 ? 0 : static_cast<int64_t>(elements[0]->nested_splits.size());
  const int64_t values_rank = n == 0 ? 0 : elements[0]->values.rank();
  const int rank = variant->shape().rank();
  Block block;
  block.Count<rg_variant_array>(1);
  block.Count<int64_t>(rank);
  block.Count<const rg_ragged*>(n);
  block.Count<rg_ragged>(n);
  block.Count<const rg_tensor*>(n * levels);
  block.Count<rg_tensor>(n * (1 + levels));
  block.Count<int64_t>(n * (values_rank + levels));
  Result<Tensor> memory = WithOp("rg_ragged_tensor_to_variant", [&] { return block.Allocate(ctx); });
  if (!memory.ok()) return memory.status();
  rg_variant_array* const array = block.Take<rg_variant_array>(1);
  int64_t* const shape = block.Take<int64_t>(rank);
  std::ranges::copy(variant->shape().dims(), shape);
  const rg_ragged** const list = block.Take<const rg_ragged*>(n);
  for (int64_t i = 0; i < n; ++i) {
    const RaggedView& element = *elements[static_cast<size_t>(i)];
    rg_ragged* const ragged = block.Take<rg_ragged>(1);
    const rg_tensor** const splits = block.Take<const rg_tensor*>(levels);
    for (int64_t level = 0; level < levels; ++level) {
      splits[level] = Describe(element.nested_splits[static_cast<size_t>(level)], block);
    }
    *ragged = {sizeof(rg_ragged), Describe(element.values, block), splits, static_cast<int32_t>(levels)};
    list[i] = ragged;
  }
  *array = {sizeof(rg_variant_array), rank, shape, n, list};
  return Described{*std::move(variant), *std::move(memory), array};
}

rg_block Release(Tensor& tensor) noexcept {
  const Device device = tensor.view().device;
  const size_t bytes = tensor.bytes();
  return {tensor.release(), bytes, static_cast<int32_t>(device.kind), device.number};
}

}  // namespace

void rg_variant_output_free(const rg_context* context, rg_variant_output* output) {
  constexpr std::string_view kFunction = "rg_variant_output_free";
  rg_context given{};
  if (output == nullptr || !capi::ReadContext(kFunction, context, given).ok()) return;
  if (!capi::CheckStructSize(kFunction, {"output"}, output, capi::kFirstSize<rg_variant_output>).ok()) return;
  for (rg_block& block : output->blocks) {
    if (!capi::Free(given, block)) return;
    block = {};
  }
  output->array = nullptr;
}

rg_status rg_ragged_tensor_to_variant(const rg_context* context, const rg_tensor* const* rt_nested_splits,
                                      int32_t num_splits, const rg_tensor* rt_dense_values, int32_t batched_input,
                                      rg_variant_output* encoded_ragged, rg_error* error) {
  CCall call("rg_ragged_tensor_to_variant", context, error, {});
  call.Note(capi::WriteStruct(call.function(), {"encoded_ragged"}, encoded_ragged, {}));
  List<TensorView> storage;
  const auto splits = call.Read("rt_nested_splits", rt_nested_splits, num_splits, storage);
  const TensorView values = call.Read("rt_dense_values", rt_dense_values);
  return call.Run(
      [&](const Context& ctx) { return Describe(RaggedTensorToVariant(splits, values, batched_input != 0, ctx), ctx); },
      [&](Described& result) {
        encoded_ragged->array = result.array;
        encoded_ragged->blocks[0] = Release(result.variant.values());
        encoded_ragged->blocks[1] = Release(result.variant.splits());
        encoded_ragged->blocks[2] = Release(result.memory);
      });
}

rg_status rg_ragged_tensor_from_variant(const rg_context* context, const rg_variant_array* encoded_ragged,
                                        int64_t input_ragged_rank, int64_t output_ragged_rank, int32_t values_dtype,
                                        int32_t splits_dtype, rg_output* const* output_nested_splits,
                                        rg_output* output_dense_values, rg_error* error) {
  CCall call("rg_ragged_tensor_from_variant", context, error, {output_dense_values});
  call.ReadOutputs("output_nested_splits", output_nested_splits, output_ragged_rank);
  ElementViews elements(ElementViews::Splits::kRead);
  const VariantArrayView encoded = call.Read("encoded_ragged", encoded_ragged, elements);
  return call.Run(
      [&](const Context& ctx) {
        return RaggedTensorFromVariant(encoded, input_ragged_rank, output_ragged_rank, static_cast<DType>(values_dtype),
                                       static_cast<DType>(splits_dtype), ctx);
      },
      [&](Ragged& result) {
        rg_output* const* next = output_nested_splits;
        for (Tensor& splits : result.nested_splits()) Store(splits, *next++);
        Store(result.values(), output_dense_values);
      });
}

rg_status rg_ragged_tensor_to_variant_grad(const rg_context* context, const rg_variant_array* encoded_ragged_grad,
                                           const rg_tensor* row_splits, const rg_tensor* dense_values_shape,
                                           int32_t values_dtype, rg_output* dense_values_grad, rg_error* error) {
  CCall call("rg_ragged_tensor_to_variant_grad", context, error, {dense_values_grad});
  ElementViews elements(ElementViews::Splits::kIgnored);
  const VariantArrayView encoded = call.Read("encoded_ragged_grad", encoded_ragged_grad, elements);
  const TensorView splits = call.Read("row_splits", row_splits);
  const TensorView shape = call.Read("dense_values_shape", dense_values_shape);
  const DType dtype = static_cast<DType>(values_dtype);
  return call.Run([&](const Context& ctx) { return RaggedTensorToVariantGradient(encoded, splits, shape, dtype, ctx); },
                  [&](Tensor& result) { Store(result, dense_values_grad); });
}
