#include "raggrad/testing/golden_operators.h"

#include <utility>

#include "raggrad/ops/ragged_variant/ragged_variant.h"
#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"
#include "raggrad/ops/sparse_slice/sparse_slice.h"
#include "raggrad/tensorflow_names.h"

namespace raggrad::testing {
namespace {

// The status of a call whose result is one tensor.
Status OneOutput(std::string_view name, const Result<Tensor>& result, GoldenOutputs& outputs) {
  if (result.ok()) outputs.Add(name, result->view());
  return result.status();
}

template <auto kOperator>
Status Segment(const GoldenCase& golden, const Context& ctx, GoldenOutputs& outputs) {
  return OneOutput("output", kOperator(golden.Input("data"), golden.Input("indices"), golden.Input("segment_ids"), ctx),
                   outputs);
}

template <auto kOperator>
Status SegmentWithNumSegments(const GoldenCase& golden, const Context& ctx, GoldenOutputs& outputs) {
  return OneOutput("output",
                   kOperator(golden.Input("data"), golden.Input("indices"), golden.Input("segment_ids"),
                             golden.Input("num_segments"), ctx),
                   outputs);
}

template <auto kOperator>
Status SegmentGrad(const GoldenCase& golden, const Context& ctx, GoldenOutputs& outputs) {
  return OneOutput("output",
                   kOperator(golden.Input("grad"), golden.Input("indices"), golden.Input("segment_ids"),
                             golden.Input("output_dim0"), ctx),
                   outputs);
}

template <auto kOperator>
Status SegmentGradV2(const GoldenCase& golden, const Context& ctx, GoldenOutputs& outputs) {
  const auto result = kOperator(golden.Input("grad"), golden.Input("indices"), golden.Input("segment_ids"),
                                golden.Input("dense_output_dim0"), ctx);
  if (!result.ok()) return result.status();
  outputs.Add("output", result->output.view());
  outputs.Add("sorted_unique_indices", result->sorted_unique_indices.view());
  return {};
}

template <auto kOperator>
Status FillEmptyRowsGrad(const GoldenCase& golden, const Context& ctx, GoldenOutputs& outputs) {
  const auto result = kOperator(golden.Input("reverse_index_map"), golden.Input("grad_values"), ctx);
  if (!result.ok()) return result.status();
  outputs.Add("d_values", result->d_values.view());
  outputs.Add("d_default_value", result->d_default_value.view());
  return {};
}

Status SparseFill(const GoldenCase& golden, const Context& ctx, GoldenOutputs& outputs) {
  const auto result = SparseFillEmptyRows(golden.Input("indices"), golden.Input("values"), golden.Input("dense_shape"),
                                          golden.Input("default_value"), ctx);
  if (!result.ok()) return result.status();
  outputs.Add("output_indices", result->output_indices.view());
  outputs.Add("output_values", result->output_values.view());
  outputs.Add("empty_row_indicator", result->empty_row_indicator.view());
  outputs.Add("reverse_index_map", result->reverse_index_map.view());
  return {};
}

Status RaggedFill(const GoldenCase& golden, const Context& ctx, GoldenOutputs& outputs) {
  const auto result = RaggedFillEmptyRows(golden.Input("value_rowids"), golden.Input("values"), golden.Input("nrows"),
                                          golden.Input("default_value"), ctx);
  if (!result.ok()) return result.status();
  outputs.Add("output_value_rowids", result->output_value_rowids.view());
  outputs.Add("output_values", result->output_values.view());
  outputs.Add("empty_row_indicator", result->empty_row_indicator.view());
  outputs.Add("reverse_index_map", result->reverse_index_map.view());
  return {};
}

Status Slice(const GoldenCase& golden, const Context& ctx, GoldenOutputs& outputs) {
  const auto result = SparseSlice(golden.Input("indices"), golden.Input("values"), golden.Input("shape"),
                                  golden.Input("start"), golden.Input("size"), ctx);
  if (!result.ok()) return result.status();
  outputs.Add("output_indices", result->output_indices.view());
  outputs.Add("output_values", result->output_values.view());
  outputs.Add("output_shape", result->output_shape.view());
  return {};
}

Status SliceGrad(const GoldenCase& golden, const Context& ctx, GoldenOutputs& outputs) {
  return OneOutput("val_grad",
                   SparseSliceGrad(golden.Input("backprop_val_grad"), golden.Input("input_indices"),
                                   golden.Input("input_start"), golden.Input("output_indices"), ctx),
                   outputs);
}

Status ToVariant(const GoldenCase& golden, const Context& ctx, GoldenOutputs& outputs) {
  const auto result = RaggedTensorToVariant(golden.ListInput("rt_nested_splits"), golden.Input("rt_dense_values"),
                                            golden.BoolAttr("batched_input"), ctx);
  if (result.ok()) outputs.Add("encoded_ragged", result->view());
  return result.status();
}

Status FromVariant(const GoldenCase& golden, const Context& ctx, GoldenOutputs& outputs) {
  const auto result = RaggedTensorFromVariant(golden.VariantInput("encoded_ragged"),
                                              golden.IntAttr("input_ragged_rank"), golden.IntAttr("output_ragged_rank"),
                                              golden.DTypeAttr("Tvalues"), golden.DTypeAttr("Tsplits"), ctx);
  if (!result.ok()) return result.status();
  outputs.Add("output_nested_splits", result->nested_splits());
  outputs.Add("output_dense_values", result->values().view());
  return {};
}

Status ToVariantGradient(const GoldenCase& golden, const Context& ctx, GoldenOutputs& outputs) {
  return OneOutput("dense_values_grad",
                   RaggedTensorToVariantGradient(golden.VariantInput("encoded_ragged_grad"), golden.Input("row_splits"),
                                                 golden.Input("dense_values_shape"), golden.DTypeAttr("Tvalues"), ctx),
                   outputs);
}

constexpr std::pair<std::string_view, GoldenOperator> kOperators[] = {
    {"RaggedFillEmptyRows", RaggedFill},
    {"RaggedFillEmptyRowsGrad", FillEmptyRowsGrad<RaggedFillEmptyRowsGrad>},
    {"RaggedTensorFromVariant", FromVariant},
    {"RaggedTensorToVariant", ToVariant},
    {"RaggedTensorToVariantGradient", ToVariantGradient},
    {"SparseFillEmptyRows", SparseFill},
    {"SparseFillEmptyRowsGrad", FillEmptyRowsGrad<SparseFillEmptyRowsGrad>},
    {"SparseSegmentMean", Segment<SparseSegmentMean>},
    {"SparseSegmentMeanGrad", SegmentGrad<SparseSegmentMeanGrad>},
    {"SparseSegmentMeanGradV2", SegmentGradV2<SparseSegmentMeanGradV2>},
    {"SparseSegmentMeanWithNumSegments", SegmentWithNumSegments<SparseSegmentMeanWithNumSegments>},
    {"SparseSegmentSqrtN", Segment<SparseSegmentSqrtN>},
    {"SparseSegmentSqrtNGrad", SegmentGrad<SparseSegmentSqrtNGrad>},
    {"SparseSegmentSqrtNGradV2", SegmentGradV2<SparseSegmentSqrtNGradV2>},
    {"SparseSegmentSqrtNWithNumSegments", SegmentWithNumSegments<SparseSegmentSqrtNWithNumSegments>},
    {"SparseSegmentSum", Segment<SparseSegmentSum>},
    {"SparseSegmentSumGrad", SegmentGrad<SparseSegmentSumGrad>},
    {"SparseSegmentSumGradV2", SegmentGradV2<SparseSegmentSumGradV2>},
    {"SparseSegmentSumWithNumSegments", SegmentWithNumSegments<SparseSegmentSumWithNumSegments>},
    {"SparseSlice", Slice},
    {"SparseSliceGrad", SliceGrad},
};

}  // namespace

GoldenOperator FindGoldenOperator(std::string_view name) {
  for (const auto& [known, function] : kOperators) {
    if (known == name) return function;
  }
  return nullptr;
}

}  // namespace raggrad::testing
