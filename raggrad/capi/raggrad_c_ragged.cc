// The operators on variant arrays.
#include <algorithm>
#include <array>
#include <cstring>
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
    size_t bytes = 0;
    overflow_ |= __builtin_mul_overflow(static_cast<size_t>(items), sizeof(T), &bytes);
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
    next_ += static_cast<size_t>(items) * sizeof(T);
    return place;
  }

 private:
  size_t size_ = 0;
  bool overflow_ = false;
  std::byte* next_ = nullptr;
};

rg_tensor Describe(const TensorView& view, Block& block) noexcept {
  const auto dims = view.shape.dims();
  int64_t* const shape = block.Take<int64_t>(view.rank());
  std::ranges::copy(dims, shape);
  return {view.data, static_cast<int32_t>(view.dtype), static_cast<int32_t>(view.device.kind), view.rank(), shape};
}

// A variant array and its description in C structs. All elements have the same number of splits and values of one rank.
struct Described {
  VariantArray variant;
  Tensor memory;
  rg_variant_array array{};
};

Result<Described> Describe(Result<VariantArray> variant, const Context& ctx) noexcept {
  if (!variant.ok()) return variant.status();
  const auto elements = variant->elements();
  const auto n = static_cast<int64_t>(elements.size());
  const int64_t levels = n == 0 ? 0 : static_cast<int64_t>(elements[0]->nested_splits.size());
  const int rank = variant->shape().rank();
  Block block;
  block.Count<int64_t>(rank);
  block.Count<rg_ragged>(n);
  if (n > 0) {
    block.Count<int64_t>(n * elements[0]->values.rank());
    block.Count<rg_tensor>(n * levels);
    block.Count<int64_t>(n * levels);
  }
  Result<Tensor> memory = WithOp("rg_ragged_tensor_to_variant", [&] { return block.Allocate(ctx); });
  if (!memory.ok()) return memory.status();
  int64_t* const shape = block.Take<int64_t>(rank);
  std::ranges::copy(variant->shape().dims(), shape);
  rg_ragged* const raggeds = block.Take<rg_ragged>(n);
  for (int64_t i = 0; i < n; ++i) {
    const RaggedView& element = *elements[static_cast<size_t>(i)];
    rg_tensor* const splits = block.Take<rg_tensor>(levels);
    for (int64_t level = 0; level < levels; ++level) {
      splits[level] = Describe(element.nested_splits[static_cast<size_t>(level)], block);
    }
    raggeds[i] = {0, static_cast<int32_t>(levels), splits, Describe(element.values, block)};
  }
  return Described{*std::move(variant), *std::move(memory), {rank, shape, n, raggeds}};
}

}  // namespace

void rg_variant_output_free(const rg_context* context, rg_variant_output* output) {
  if (output == nullptr) return;
  for (const auto& block : output->blocks) {
    rg_output owned{};
    owned.data = block.data;
    owned.bytes = block.bytes;
    rg_output_free(context, &owned);
  }
  *output = {};
}

rg_status rg_ragged_tensor_to_variant(const rg_context* context, const rg_tensor* rt_nested_splits, int32_t num_splits,
                                      const rg_tensor* rt_dense_values, int32_t batched_input,
                                      rg_variant_output* encoded_ragged, rg_error* error) {
  CCall call("rg_ragged_tensor_to_variant", context, error, {});
  if (call.Given("encoded_ragged", encoded_ragged)) *encoded_ragged = {};
  List<TensorView> storage;
  const auto splits = call.Read("rt_nested_splits", rt_nested_splits, num_splits, storage);
  const TensorView values = call.Read("rt_dense_values", rt_dense_values);
  return call.Run(
      [&](const Context& ctx) { return Describe(RaggedTensorToVariant(splits, values, batched_input != 0, ctx), ctx); },
      [&](Described& result) {
        encoded_ragged->array = result.array;
        const std::array<Tensor*, 3> tensors = {&result.variant.values(), &result.variant.splits(), &result.memory};
        for (size_t i = 0; i < tensors.size(); ++i) {
          encoded_ragged->blocks[i].bytes = tensors[i]->bytes();
          encoded_ragged->blocks[i].data = tensors[i]->release();
        }
      });
}

rg_status rg_ragged_tensor_from_variant(const rg_context* context, const rg_variant_array* encoded_ragged,
                                        int64_t input_ragged_rank, int64_t output_ragged_rank, int32_t values_dtype,
                                        int32_t splits_dtype, rg_output* output_nested_splits,
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
        rg_output* next = output_nested_splits;
        for (Tensor& splits : result.nested_splits()) Store(splits, next++);
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
