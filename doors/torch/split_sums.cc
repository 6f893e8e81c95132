#include "split_sums.h"

#include "raggrad/ops/sparse_segment/segment_order.h"

namespace raggrad::torch_door {
namespace {

SplitTerms TermsOf(Call& call, const TorchTensor& data, const TorchTensor& indices, const TorchTensor& segment_ids,
                   const std::optional<TorchTensor>& factors) {
  SplitTerms terms{call.View(data), call.View(indices), call.View(segment_ids)};
  if (factors) terms.factors = call.View(*factors);
  return terms;
}

// Of int32 or int64.
int64_t NumberAt(const TensorView& numbers, int64_t i) noexcept {
  return numbers.dtype == DType::kInt32 ? numbers.As<int32_t>()[i] : numbers.As<int64_t>()[i];
}

}  // namespace

TorchTensor SplitLargest(const TorchTensor& data, const TorchTensor& indices, const TorchTensor& segment_ids,
                         const std::optional<TorchTensor>& factors, int64_t num_segments) {
  Call call("split_largest", data);
  return call.Take(
      call.Get(LargestSplitTerms(TermsOf(call, data, indices, segment_ids, factors), num_segments, call.context())));
}

TorchTensor SplitSums(const TorchTensor& data, const TorchTensor& indices, const TorchTensor& segment_ids,
                      const std::optional<TorchTensor>& factors, const TorchTensor& largest,
                      const TorchTensor& counts) {
  Call call("split_sums", data);
  return call.Take(call.Get(SumSplitTerms(TermsOf(call, data, indices, segment_ids, factors), call.View(largest),
                                          call.View(counts), call.context())));
}

TorchTensor SplitRound(const TorchTensor& sums, const TorchTensor& largest, const TorchTensor& counts,
                       const TorchTensor& like, const std::string& combiner) {
  constexpr std::string_view kOp = "split_round";
  Call call(kOp, sums);
  return call.Take(call.Get(RoundSplitSums(CombinerOf(kOp, "combiner", combiner), call.View(like).dtype,
                                           call.View(sums), call.View(largest), call.View(counts), call.context())));
}

std::tuple<TorchTensor, TorchTensor, TorchTensor> OrderIds(const TorchTensor& ids, int64_t table_rows) {
  Call call("order_ids", ids);
  const TensorView as_they_come = call.View(ids);
  const auto order = call.Get(OrderBySegment(as_they_come, table_rows, OutOfRange::kError, call.context()));
  const TensorView rows = order ? order->segment_ids.view() : as_they_come;
  const int64_t n = rows.dim(0);
  const auto starts = [&](int64_t i) { return i == 0 || NumberAt(rows, i) != NumberAt(rows, i - 1); };
  int64_t num_unique = 0;
  for (int64_t i = 0; i < n; ++i) num_unique += starts(i);
  Tensor unique = call.Get(AllocateOutput(call.context(), 0, DType::kInt64, Shape{num_unique}));
  Tensor positions = call.Get(AllocateOutput(call.context(), 1, DType::kInt64, Shape{n}));
  Tensor places = call.Get(AllocateOutput(call.context(), 2, DType::kInt64, Shape{n}));
  int64_t place = -1;
  for (int64_t i = 0; i < n; ++i) {
    if (starts(i)) unique.As<int64_t>()[++place] = NumberAt(rows, i);
    positions.As<int64_t>()[i] = order ? NumberAt(order->positions.view(), i) : i;
    places.As<int64_t>()[i] = place;
  }
  return {call.Take(std::move(unique)), call.Take(std::move(positions)), call.Take(std::move(places))};
}

}  // namespace raggrad::torch_door

using namespace raggrad::torch_door;

STABLE_TORCH_LIBRARY_FRAGMENT(raggrad, library) {
  library.def(
      "split_largest(Tensor data, Tensor indices, Tensor segment_ids, Tensor? factors, SymInt num_segments) -> Tensor");
  library.def(
      "split_sums(Tensor data, Tensor indices, Tensor segment_ids, Tensor? factors, Tensor largest, Tensor counts) -> "
      "Tensor");
  library.def("split_round(Tensor sums, Tensor largest, Tensor counts, Tensor like, str combiner) -> Tensor");
  library.def("order_ids(Tensor ids, SymInt table_rows) -> (Tensor unique, Tensor positions, Tensor places)");
}

STABLE_TORCH_LIBRARY_IMPL(raggrad, CPU, library) {
  library.impl("split_largest", TORCH_BOX(&SplitLargest));
  library.impl("split_sums", TORCH_BOX(&SplitSums));
  library.impl("split_round", TORCH_BOX(&SplitRound));
  library.impl("order_ids", TORCH_BOX(&OrderIds));
}
