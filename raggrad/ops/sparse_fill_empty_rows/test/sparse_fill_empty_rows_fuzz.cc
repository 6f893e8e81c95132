// Compares the family's operators with reference.h: see fuzz/README.md.
#include "raggrad/ops/sparse_fill_empty_rows/kernels.h"
#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"
#include "raggrad/ops/sparse_fill_empty_rows/test/reference.h"
#include "raggrad/testing/fuzz_driver.h"
#include "raggrad/testing/fuzz_operand.h"

namespace raggrad::sparse_fill_empty_rows {
namespace {

using fuzz::Expected;
using fuzz::FuzzInput;
using fuzz::Operand;

// The code that follows from shapes and types. OK: the data decides.
Code CodeOfForm(const Operand& map, const Operand& grad) {
  if (map.view.dtype != DType::kInt64 || !Contains(NumberTypes{}, grad.view.dtype)) return Code::kInvalidArgument;
  if (!map.readable || !grad.readable || map.view.device != grad.view.device) return Code::kInvalidArgument;
  if (map.view.rank() != 1 || grad.view.rank() != 1) return Code::kInvalidArgument;
  return grad.view.device.is_cpu() ? Code::kOk : Code::kUnimplemented;
}

Expected ExpectedOf(const Operand& map, const Operand& grad) {
  const std::span places(map.view.As<int64_t>(), static_cast<size_t>(map.view.dim(0)));
  auto result = reference::Grad(places, grad.view);
  if (result.bad_position >= 0) return {};
  Expected expected{Code::kOk, {}, false};
  expected.outputs.push_back(std::move(result.d_values));
  expected.outputs.push_back(std::move(result.d_default_value));
  return expected;
}

void FuzzGrad(FuzzInput& in) {
  const int64_t form = in.Below(4);
  const auto op = form % 2 == 0 ? SparseFillEmptyRowsGrad : RaggedFillEmptyRowsGrad;
  const DType dtype = in.DTypeOf(NumberTypes{});
  const int64_t n_full = in.Count(100, 60000);
  const int64_t n = n_full == 0 ? in.Below(2) : in.Count(100, 60000);
  const bool narrow = in.OneIn(100);
  const Operand map(in, narrow ? testing::TensorOf(in.Ids<int32_t>(n, n_full), Shape{n})
                               : testing::TensorOf(in.Ids<int64_t>(n, n_full), Shape{n}));
  const Operand grad(in, fuzz::AnyTensor(in, dtype, Shape{n_full}, n_full));

  Expected expected{CodeOfForm(map, grad), {}, false};
  if (expected.code == Code::kOk) expected = ExpectedOf(map, grad);
  if (form >= 2) expected.other = Accumulation::kReproducible;
  fuzz::Check(expected, in, [&](const Context& ctx) -> Result<fuzz::Outputs> {
    auto result = op(map.view, grad.view, ctx);
    if (!result.ok()) return result.status();
    fuzz::Outputs outputs;
    outputs.push_back(std::move(result->d_values));
    outputs.push_back(std::move(result->d_default_value));
    return outputs;
  });
}

struct ForwardOperands {
  bool ragged;
  Operand indices, values, rows, default_value;
};

ForwardOperands MakeForward(FuzzInput& in) {
  const bool ragged = in.Below(2) == 0;
  const DType dtype = in.DTypeOf(FillTypes{});
  const int64_t d = ragged ? 1 : in.OneIn(32) ? in.Below(6) : 1 + in.Below(3);
  const int64_t rows = in.Count(100, 60000);
  const int64_t n = rows == 0 ? in.Below(2) : in.Count(100, 60000);
  const std::vector<int64_t> rows_of_entries = in.Ids<int64_t>(n, rows);
  std::vector<int64_t> indices = in.Values<int64_t>(n * d);
  for (size_t i = 0; d > 0 && i < rows_of_entries.size(); ++i) indices[i * static_cast<size_t>(d)] = rows_of_entries[i];
  std::vector<int64_t> dense_shape = in.Values<int64_t>(in.OneIn(40) ? d + 1 : d);
  if (!dense_shape.empty()) dense_shape[0] = rows;
  if (!dense_shape.empty() && in.OneIn(32)) dense_shape[0] = in.Below(2) == 0 ? -1 : int64_t{1} << 40;
  const int64_t dims = static_cast<int64_t>(dense_shape.size());
  const int64_t num_values = in.OneIn(40) ? in.Below(8) : n;
  const DType default_dtype = in.OneIn(40) ? in.DTypeOf(FillTypes{}) : dtype;
  return {ragged, Operand(in, testing::TensorOf(indices, ragged ? Shape{n} : Shape{n, d})),
          Operand(in, fuzz::AnyTensor(in, dtype, Shape{num_values}, num_values)),
          Operand(in, testing::TensorOf(dense_shape, ragged && dims == 1 ? Shape{} : Shape{dims})),
          Operand(in, fuzz::AnyTensor(in, default_dtype, Shape{}, 1))};
}

// The code that follows from shapes, types and the number of rows. OK: the rows of the entries decide.
Code CodeOfForm(const ForwardOperands& o) {
  if (o.indices.view.dtype != DType::kInt64 || !Contains(FillTypes{}, o.values.view.dtype) ||
      o.rows.view.dtype != DType::kInt64 || o.default_value.view.dtype != o.values.view.dtype) {
    return Code::kInvalidArgument;
  }
  const Device device = o.values.view.device;
  for (const Operand* operand : {&o.indices, &o.values, &o.default_value}) {
    if (!operand->readable || operand->view.device != device) return Code::kInvalidArgument;
  }
  if (!o.rows.readable || !o.rows.view.device.is_cpu()) return Code::kInvalidArgument;
  if (o.indices.view.rank() != (o.ragged ? 1 : 2) || o.rows.view.rank() != (o.ragged ? 0 : 1) ||
      o.values.view.rank() != 1 || o.default_value.view.rank() != 0 || o.values.view.dim(0) != o.indices.view.dim(0)) {
    return Code::kInvalidArgument;
  }
  if (!o.ragged && (o.rows.view.dim(0) != o.indices.view.dim(1) || o.rows.view.dim(0) == 0)) {
    return Code::kInvalidArgument;
  }
  const int64_t rows = *o.rows.view.As<int64_t>();
  if (rows < 0 || (rows == 0 && o.values.view.dim(0) > 0)) return Code::kInvalidArgument;
  if (!device.is_cpu()) return Code::kUnimplemented;
  return rows > 1 << 30 ? Code::kResourceExhausted : Code::kOk;
}

Expected ExpectedOf(const ForwardOperands& o) {
  Expected expected{CodeOfForm(o), {}, false};
  if (expected.code != Code::kOk) return expected;
  const int64_t n = o.values.view.dim(0);
  const int64_t d = o.ragged ? 1 : o.indices.view.dim(1);
  const int64_t rows = *o.rows.view.As<int64_t>();
  const std::span indices(o.indices.view.As<int64_t>(), static_cast<size_t>(n * d));
  const auto result = reference::Fill(indices, static_cast<size_t>(d), rows);
  if (result.bad_position >= 0) return {};
  const int64_t n_full = static_cast<int64_t>(result.sources.size());
  const Shape shape = o.ragged && rows > 0 ? Shape{n_full} : Shape{n_full, d};
  expected.outputs.push_back(testing::TensorOf(result.output_indices, shape));
  expected.outputs.push_back(testing::Gather(o.values.view, result.sources, o.default_value.view));
  const std::string indicator(result.empty_row_indicator.begin(), result.empty_row_indicator.end());
  expected.outputs.push_back(testing::TensorOfBytes(DType::kBool, Shape{rows}, indicator));
  expected.outputs.push_back(testing::TensorOf(result.reverse_index_map, Shape{n}));
  return expected;
}

void FuzzForward(FuzzInput& in) {
  const ForwardOperands o = MakeForward(in);
  const auto outputs = [](Tensor& indices, auto& result) {
    fuzz::Outputs all;
    all.push_back(std::move(indices));
    all.push_back(std::move(result.output_values));
    all.push_back(std::move(result.empty_row_indicator));
    all.push_back(std::move(result.reverse_index_map));
    return all;
  };
  fuzz::Check(ExpectedOf(o), in, [&](const Context& ctx) -> Result<fuzz::Outputs> {
    if (o.ragged) {
      auto result = RaggedFillEmptyRows(o.indices.view, o.values.view, o.rows.view, o.default_value.view, ctx);
      if (!result.ok()) return result.status();
      return outputs(result->output_value_rowids, *result);
    }
    auto result = SparseFillEmptyRows(o.indices.view, o.values.view, o.rows.view, o.default_value.view, ctx);
    if (!result.ok()) return result.status();
    return outputs(result->output_indices, *result);
  });
}

}  // namespace
}  // namespace raggrad::sparse_fill_empty_rows

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  raggrad::fuzz::FuzzInput in(data, size);
  in.Below(2) == 0 ? raggrad::sparse_fill_empty_rows::FuzzGrad(in) : raggrad::sparse_fill_empty_rows::FuzzForward(in);
  return 0;
}
