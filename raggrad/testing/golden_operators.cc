#include "raggrad/testing/golden_operators.h"

#include <utility>

#include "raggrad/ops/ragged_variant/ragged_variant.h"
#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"
#include "raggrad/ops/sparse_slice/sparse_slice.h"

namespace raggrad::testing {
namespace {

Result<GoldenOutputs> OneOutput(std::string_view name, Result<Tensor> result) {
  if (!result.ok()) return result.status();
  return GoldenOutputs{{{name, std::move(*result)}, {}}};
}

template <auto kOperator>
Result<GoldenOutputs> Segment(const GoldenCase& golden, const Context& ctx) {
  return OneOutput("output",
                   kOperator(golden.Input("data"), golden.Input("indices"), golden.Input("segment_ids"), ctx));
}

template <auto kOperator>
Result<GoldenOutputs> SegmentWithNumSegments(const GoldenCase& golden, const Context& ctx) {
  return OneOutput("output", kOperator(golden.Input("data"), golden.Input("indices"), golden.Input("segment_ids"),
                                       golden.Input("num_segments"), ctx));
}

template <auto kOperator>
Result<GoldenOutputs> SegmentGrad(const GoldenCase& golden, const Context& ctx) {
  return OneOutput("output", kOperator(golden.Input("grad"), golden.Input("indices"), golden.Input("segment_ids"),
                                       golden.Input("output_dim0"), ctx));
}

template <auto kOperator>
Result<GoldenOutputs> SegmentGradV2(const GoldenCase& golden, const Context& ctx) {
  auto result = kOperator(golden.Input("grad"), golden.Input("indices"), golden.Input("segment_ids"),
                          golden.Input("dense_output_dim0"), ctx);
  if (!result.ok()) return result.status();
  return GoldenOutputs{
      {{"output", std::move(result->output)}, {"sorted_unique_indices", std::move(result->sorted_unique_indices)}}};
}

template <auto kOperator>
Result<GoldenOutputs> FillEmptyRowsGrad(const GoldenCase& golden, const Context& ctx) {
  auto result = kOperator(golden.Input("reverse_index_map"), golden.Input("grad_values"), ctx);
  if (!result.ok()) return result.status();
  return GoldenOutputs{
      {{"d_values", std::move(result->d_values)}, {"d_default_value", std::move(result->d_default_value)}}};
}

Result<GoldenOutputs> SliceGrad(const GoldenCase& golden, const Context& ctx) {
  return OneOutput("val_grad", SparseSliceGrad(golden.Input("backprop_val_grad"), golden.Input("input_indices"),
                                               golden.Input("input_start"), golden.Input("output_indices"), ctx));
}

Result<GoldenOutputs> ToVariantGradient(const GoldenCase& golden, const Context& ctx) {
  return OneOutput("dense_values_grad",
                   RaggedTensorToVariantGradient(golden.VariantInput("encoded_ragged_grad"), golden.Input("row_splits"),
                                                 golden.Input("dense_values_shape"), golden.DTypeAttr("Tvalues"), ctx));
}

constexpr std::pair<std::string_view, GoldenOperator> kOperators[] = {
    {"RaggedFillEmptyRowsGrad", FillEmptyRowsGrad<RaggedFillEmptyRowsGrad>},
    {"RaggedTensorToVariantGradient", ToVariantGradient},
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
