#include "operators.h"

#include <array>
#include <utility>

#include "adapter.h"
#include "raggrad/tensorflow_names.h"

namespace raggrad::tf_door {
namespace {

template <class... Ts>
consteval std::array<DType, sizeof...(Ts)> DTypesOf(TypeList<Ts...>) {
  return {kDTypeOf<Ts>...};
}

constexpr auto kFloats = DTypesOf(FloatTypes{});
constexpr auto kNumbers = DTypesOf(NumberTypes{});
constexpr auto kReals = DTypesOf(
    JoinLists<FloatTypes, TypeList<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>>{});
constexpr auto kElements = DTypesOf(JoinLists<NumberTypes, TypeList<bool, String>>{});

template <class R, class... Args>
consteval int NumInputs(R (*)(Args...) noexcept) {
  return sizeof...(Args) - 1;  // the last one is the context
}

template <auto kFunction>
std::atomic<int64_t> calls{0};

template <auto kFunction>
void Compute(void* /*kernel*/, TF_OpKernelContext* context) noexcept {
  calls<kFunction>.fetch_add(1, std::memory_order_relaxed);
  Call call(context);
  [&]<int... i>(std::integer_sequence<int, i...>) { call.Finish(kFunction(call.View(i)..., call.context())); }
  (std::make_integer_sequence<int, NumInputs(kFunction)>{});
}

// A function of the engine whose operands are the inputs of the operator, in their order. Attributes other than types
// have no influence on these operators.
template <auto kFunction>
Operator Kernel(const char* name, std::span<const DType> types) {
  return {name, types, &Compute<kFunction>, &calls<kFunction>};
}

}  // namespace

std::span<const Operator> Operators() noexcept {
  static const std::array operators = {
      Kernel<&SparseSegmentSum>("SparseSegmentSum", kReals),
      Kernel<&SparseSegmentMean>("SparseSegmentMean", kFloats),
      Kernel<&SparseSegmentSqrtN>("SparseSegmentSqrtN", kFloats),
      Kernel<&SparseSegmentSumWithNumSegments>("SparseSegmentSumWithNumSegments", kReals),
      Kernel<&SparseSegmentMeanWithNumSegments>("SparseSegmentMeanWithNumSegments", kFloats),
      Kernel<&SparseSegmentSqrtNWithNumSegments>("SparseSegmentSqrtNWithNumSegments", kFloats),
      Kernel<&SparseSegmentSumGrad>("SparseSegmentSumGrad", kFloats),
      Kernel<&SparseSegmentMeanGrad>("SparseSegmentMeanGrad", kFloats),
      Kernel<&SparseSegmentSqrtNGrad>("SparseSegmentSqrtNGrad", kFloats),
      Kernel<&SparseSegmentSumGradV2>("SparseSegmentSumGradV2", kFloats),
      Kernel<&SparseSegmentMeanGradV2>("SparseSegmentMeanGradV2", kFloats),
      Kernel<&SparseSegmentSqrtNGradV2>("SparseSegmentSqrtNGradV2", kFloats),
      Kernel<&SparseFillEmptyRows>("SparseFillEmptyRows", kElements),
      Kernel<&SparseFillEmptyRowsGrad>("SparseFillEmptyRowsGrad", kNumbers),
      Kernel<&RaggedFillEmptyRows>("RaggedFillEmptyRows", kElements),
      Kernel<&RaggedFillEmptyRowsGrad>("RaggedFillEmptyRowsGrad", kNumbers),
      Kernel<&SparseSlice>("SparseSlice", kElements),
      Kernel<&SparseSliceGrad>("SparseSliceGrad", kNumbers),
  };
  return operators;
}

}  // namespace raggrad::tf_door
