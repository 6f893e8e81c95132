// Compares the family's gradients with reference.h: see fuzz/README.md.
#include <optional>

#include "raggrad/ops/sparse_segment/sparse_segment.h"
#include "raggrad/ops/sparse_segment/test/reference.h"
#include "raggrad/ops/sparse_segment/test/weighted_reproducible.h"
#include "raggrad/testing/fuzz_driver.h"
#include "raggrad/testing/fuzz_operand.h"

namespace raggrad::sparse_segment {
namespace {

using fuzz::Expected;
using fuzz::FuzzInput;
using fuzz::Operand;

struct Call {
  SegmentCombiner combiner;
  bool v2;
  Accumulation other;
  Operand grad, indices, segment_ids, dim0;
  std::optional<Operand> weights;
  WeightDivisor divisor;

  SegmentPooling pooling() const {
    return weights ? SegmentPooling(combiner, {weights->view, divisor}) : SegmentPooling(combiner);
  }
};

// Inner dimensions: none, one or several, some of them 1 or 0, sometimes more than a Shape holds without the heap.
std::vector<int64_t> MakeInner(FuzzInput& in) {
  if (in.large()) return {in.Below(4)};  // there are many rows
  if (in.OneIn(4)) return {in.Below(200)};
  std::vector<int64_t> inner;
  const int64_t rank = in.OneIn(32) ? in.Below(12) : in.Below(3);
  for (int64_t i = 0; i < rank; ++i) inner.push_back(i < 3 ? in.Below(6) : 1);
  if (in.OneIn(64)) inner.insert(inner.end(), {0, fuzz::HugeDim(in)});  // large, but without elements
  return inner;
}

Operand MakeIds(FuzzInput& in, int64_t n, int64_t limit) {
  const DType dtype = in.DTypeOf(IndexTypes{});
  if (dtype == DType::kInt32) return {in, testing::TensorOf(in.Ids<int32_t>(n, limit), Shape{n})};
  if (dtype == DType::kInt64) return {in, testing::TensorOf(in.Ids<int64_t>(n, limit), Shape{n})};
  return {in, fuzz::AnyTensor(in, dtype, Shape{n}, n)};
}

Operand MakeDim0(FuzzInput& in, int64_t rows) {
  if (in.OneIn(64)) return {in, testing::TensorOf(std::vector<int64_t>{rows}, Shape{})};
  int32_t dim0 = static_cast<int32_t>(rows);
  if (in.OneIn(32)) dim0 = std::vector<int32_t>{-1, INT32_MIN, INT32_MAX, 1 << 20}[static_cast<size_t>(in.Below(4))];
  return {in, testing::TensorOf(std::vector<int32_t>{dim0}, Shape{})};
}

std::optional<Operand> MakeWeights(FuzzInput& in, DType of_grad, int64_t n) {
  if (in.Below(2) == 0) return std::nullopt;
  const DType dtype = in.OneIn(32) ? in.DTypeOf(FloatTypes{}) : in.Below(2) == 0 ? DType::kFloat32 : of_grad;
  const int64_t size = in.OneIn(64) ? in.Below(100) : n;
  return Operand(in, fuzz::AnyTensor(in, dtype, Shape{size}, size));
}

Call MakeCall(FuzzInput& in) {
  const auto combiner = static_cast<SegmentCombiner>(in.Below(3));
  const int64_t form = in.Below(4);
  const bool v2 = form % 2 == 0;
  const Accumulation other = form < 2 ? Accumulation::kFast : Accumulation::kReproducible;
  const DType dtype = in.DTypeOf(FloatTypes{});
  std::vector<int64_t> inner = MakeInner(in);
  int64_t n = in.Count(100, 60000);
  int64_t segments = in.Count(40, 300);
  int64_t width = Shape::Product(inner).value_or(0);
  if (width == 0 && in.OneIn(8)) segments <<= 33;  // more than 2^32 segments, without elements
  int64_t rows = in.Count(60, 2000);
  if (segments == 0 && in.Below(2) == 0) {  // no segments, but rows that no memory could hold
    inner = {fuzz::HugeDim(in)};
    width = 0;
    n = in.Below(2) * in.Below(4);
    rows = in.Below(3);
  }
  const Shape grad_shape = in.OneIn(64) ? Shape{} : Shape::WithDim0(segments, inner);
  const int64_t grad_size = grad_shape.rank() == 0 ? 1 : segments * width;
  Operand grad(in, fuzz::AnyTensor(in, dtype, grad_shape, grad_size));
  Operand indices = MakeIds(in, n, rows);
  Operand segment_ids = MakeIds(in, in.OneIn(64) ? in.Below(100) : n, segments);
  Operand dim0 = MakeDim0(in, rows);
  std::optional<Operand> weights = MakeWeights(in, dtype, n);
  const auto divisor = static_cast<WeightDivisor>(in.Below(2));
  return {
      combiner,           v2,     other, std::move(grad), std::move(indices), std::move(segment_ids), std::move(dim0),
      std::move(weights), divisor};
}

Code CodeOfForm(const Call& call) {
  const auto is_index = [](const Operand& o) { return Contains(IndexTypes{}, o.view.dtype); };
  if (!Contains(FloatTypes{}, call.grad.view.dtype) || !is_index(call.indices) || !is_index(call.segment_ids) ||
      call.dim0.view.dtype != DType::kInt32) {
    return Code::kInvalidArgument;
  }
  const Device device = call.grad.view.device;
  for (const Operand* operand : {&call.grad, &call.indices, &call.segment_ids}) {
    if (!operand->readable || operand->view.device != device) return Code::kInvalidArgument;
  }
  if (!call.dim0.readable || !call.dim0.view.device.is_cpu()) return Code::kInvalidArgument;
  if (call.indices.view.rank() != 1 || call.segment_ids.view.rank() != 1 || call.dim0.view.rank() != 0 ||
      call.indices.view.dim(0) != call.segment_ids.view.dim(0) || call.grad.view.rank() == 0) {
    return Code::kInvalidArgument;
  }
  const int64_t rows = *call.dim0.view.As<int32_t>();
  if (rows < 0 || !Shape::WithDim0(rows, call.grad.view.shape.tail()).NumElements()) return Code::kInvalidArgument;
  if (call.weights) {
    const TensorView& weights = call.weights->view;
    if ((weights.dtype != call.grad.view.dtype && weights.dtype != DType::kFloat32) || !call.weights->readable ||
        weights.device != device || weights.rank() != 1 || weights.dim(0) != call.indices.view.dim(0)) {
      return Code::kInvalidArgument;
    }
  }
  return device.is_cpu() ? Code::kOk : Code::kUnimplemented;
}

std::vector<int64_t> Widen(const TensorView& ids) {
  const size_t n = static_cast<size_t>(ids.dim(0));
  if (ids.dtype == DType::kInt32) return {ids.As<int32_t>(), ids.As<int32_t>() + n};
  return {ids.As<int64_t>(), ids.As<int64_t>() + n};
}

// The rows with weights, for ids that have been found good.
template <class T>
reference::Rows<T> WeightedRows(const Call& call, int64_t width, Accumulation accumulation) {
  const auto rows = [&]<class W>() {
    const auto* const begin = call.weights->view.As<W>();
    const std::vector<W> weights(begin, begin + call.indices.view.dim(0));
    const std::vector<int64_t> indices = Widen(call.indices.view), segment_ids = Widen(call.segment_ids.view);
    const T* const grad = call.grad.view.As<T>();
    return accumulation == Accumulation::kReproducible
               ? reference::ReproducibleWeightedGrad(call.pooling(), weights, grad, width, indices, segment_ids)
               : reference::WeightedGrad(call.pooling(), weights, grad, width, indices, segment_ids);
  };
  return call.weights->view.dtype == DType::kFloat32 ? rows.template operator()<float>()
                                                     : rows.template operator()<T>();
}

template <class T>
fuzz::Outputs OutputsOf(const Call& call, const reference::Rows<T>& rows, int64_t table_rows, int64_t width) {
  const std::span<const int64_t> inner = call.grad.view.shape.tail();
  fuzz::Outputs outputs;
  if (!call.v2) {
    const Shape shape = Shape::WithDim0(table_rows, inner);
    outputs.push_back(testing::TensorOf(reference::Densify(rows, table_rows, width), shape));
    return outputs;
  }
  const int64_t unique = static_cast<int64_t>(rows.unique.size());
  outputs.push_back(testing::TensorOf(rows.values, Shape::WithDim0(unique, inner)));
  outputs.push_back(
      call.indices.view.dtype == DType::kInt64
          ? testing::TensorOf(rows.unique, Shape{unique})
          : testing::TensorOf(std::vector<int32_t>(rows.unique.begin(), rows.unique.end()), Shape{unique}));
  return outputs;
}

template <class T>
Expected ExpectedOf(const Call& call) {
  const TensorView& grad = call.grad.view;
  const int64_t table_rows = *call.dim0.view.As<int32_t>();
  const int64_t width = Shape::Product(grad.shape.tail()).value_or(0);
  auto rows = reference::Grad<T>(call.combiner, grad.As<T>(), grad.dim(0), width, Widen(call.indices.view),
                                 Widen(call.segment_ids.view), table_rows);
  if (rows && call.weights && table_rows > 0) rows = WeightedRows<T>(call, width, Accumulation::kSequential);
  // A dense output of more than a few MiB is too much for the reference, and perhaps for the memory.
  const bool large =
      !call.v2 && static_cast<double>(table_rows) * static_cast<double>(std::max<int64_t>(width, 1)) > 1 << 20;
  if (!rows) return {Code::kInvalidArgument, {}, large};
  Expected expected{Code::kOk, {}, large};
  if (!call.v2 && large) return expected;
  expected.outputs = OutputsOf(call, *rows, table_rows, width);
  if (call.other == Accumulation::kReproducible && table_rows > 0) {
    const auto sums = call.weights
                          ? WeightedRows<T>(call, width, call.other)
                          : reference::ReproducibleGrad<T>(call.combiner, grad.As<T>(), width, Widen(call.indices.view),
                                                           Widen(call.segment_ids.view));
    expected.other_outputs = OutputsOf(call, sums, table_rows, width);
  }
  return expected;
}

void FuzzGrad(FuzzInput& in) {
  const Call call = MakeCall(in);
  Expected expected{CodeOfForm(call), {}, false};
  if (expected.code == Code::kOk) {
    const auto expect = [&]<class T>() -> Status {
      expected = ExpectedOf<T>(call);
      return {};
    };
    if (!Visit(FloatTypes{}, call.grad.view.dtype, expect).ok()) {
      fuzz::Trap("reference", "a dtype that the list does not have");
    }
  }
  expected.other = call.other;
  const bool compares_outputs = expected.code != Code::kOk || !expected.outputs.empty();
  fuzz::Check(expected, in, [&](const Context& ctx) -> Result<fuzz::Outputs> {
    fuzz::Outputs outputs;
    if (call.v2) {
      auto result = SparseSegmentGradV2(call.pooling(), call.grad.view, call.indices.view, call.segment_ids.view,
                                        call.dim0.view, ctx);
      if (!result.ok()) return result.status();
      outputs.push_back(std::move(result->output));
      outputs.push_back(std::move(result->sorted_unique_indices));
    } else {
      auto result = SparseSegmentGrad(call.pooling(), call.grad.view, call.indices.view, call.segment_ids.view,
                                      call.dim0.view, ctx);
      if (!result.ok()) return result.status();
      if (compares_outputs) outputs.push_back(*std::move(result));
    }
    return outputs;
  });
}

}  // namespace
}  // namespace raggrad::sparse_segment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  raggrad::fuzz::FuzzInput in(data, size);
  raggrad::sparse_segment::FuzzGrad(in);
  return 0;
}
