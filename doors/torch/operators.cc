// The list of operators: schemas, and the functions behind them.
//
// `accumulation` is "sequential", "fast", "reproducible" or nothing, which leaves the order of sums to the device. A
// gradient comes in two forms: dense, and as rows (values and their ascending, unique indices).
#include <torch/csrc/stable/library.h>

#include "embedding_bag.h"
#include "plans.h"
#include "rows.h"
#include "segments.h"
#include "sparse.h"
#include "updates.h"

using namespace raggrad::torch_door;

STABLE_TORCH_LIBRARY(raggrad, library) {
  library.def(
      "sparse_segment(Tensor data, Tensor indices, Tensor segment_ids, SymInt num_segments, str combiner, "
      "str? accumulation) -> Tensor");
  library.def(
      "sparse_segment_grad(Tensor grad, Tensor indices, Tensor segment_ids, SymInt table_rows, str combiner, "
      "str? accumulation) -> Tensor");
  library.def(
      "sparse_segment_grad_rows(Tensor grad, Tensor indices, Tensor segment_ids, SymInt table_rows, str combiner, "
      "str? accumulation) -> (Tensor values, Tensor rows)");
  library.def(
      "segment(Tensor data, Tensor segment_ids, SymInt num_segments, str combiner, str? accumulation) -> Tensor");
  library.def("segment_grad(Tensor grad, Tensor segment_ids, str combiner, str? accumulation) -> Tensor");
  library.def(
      "embedding_bag(Tensor weight, Tensor indices, Tensor offsets, Tensor? per_sample_weights, str mode, "
      "bool include_last_offset, int? padding_idx, bool sparse, str? accumulation) -> Tensor");
  library.def(
      "embedding_bag_grad(Tensor grad, Tensor indices, Tensor offsets, Tensor? per_sample_weights, SymInt table_rows, "
      "str mode, bool include_last_offset, int? padding_idx, str? accumulation) -> Tensor");
  library.def(
      "embedding_bag_grad_rows(Tensor grad, Tensor indices, Tensor offsets, Tensor? per_sample_weights, "
      "SymInt table_rows, str mode, bool include_last_offset, int? padding_idx, str? accumulation) -> "
      "(Tensor values, Tensor rows)");
  library.def(
      "embedding_bag_weights_grad(Tensor grad, Tensor weight, Tensor indices, Tensor offsets, str mode, "
      "bool include_last_offset, int? padding_idx) -> Tensor");
  library.def("embedding(Tensor weight, Tensor indices, int? padding_idx, bool sparse, str? accumulation) -> Tensor");
  library.def(
      "coalesce_rows(Tensor values, Tensor rows, SymInt table_rows, str? accumulation) -> (Tensor values, Tensor "
      "rows)");
  library.def("index_add(Tensor input, Tensor source, Tensor index, float alpha, str? accumulation) -> Tensor");
  library.def(
      "fill_empty_rows(Tensor values, Tensor default_value, Tensor indices, SymInt[] shape) -> "
      "(Tensor values, Tensor indices, Tensor empty_rows, Tensor places)");
  library.def(
      "fill_empty_rows_grad(Tensor grad, Tensor places, str? accumulation) -> (Tensor d_values, Tensor "
      "d_default_value)");
  library.def(
      "sparse_slice(Tensor values, Tensor indices, SymInt[] shape, SymInt[] start, SymInt[] size) -> "
      "(Tensor values, Tensor indices)");
  library.def(
      "sparse_slice_grad(Tensor grad, Tensor indices, Tensor output_indices, SymInt[] shape, SymInt[] start, "
      "SymInt[] size) -> Tensor");
  library.def("ascends(Tensor ids) -> Tensor");
  // One step of an optimizer.
  library.def(
      "apply_rows_(Tensor(a!) table, Tensor(b!)? state1, Tensor(c!)? state2, Tensor values, Tensor rows, "
      "str optimizer, float learning_rate, float epsilon, float beta1, float beta2, int step, str? accumulation, "
      "bool coalesced=False, *, Tensor? rate=None) -> ()");
  library.def(
      "sparse_segment_grad_apply_(Tensor(a!) table, Tensor(b!)? state1, Tensor(c!)? state2, Tensor grad, "
      "Tensor indices, Tensor segment_ids, str combiner, str optimizer, float learning_rate, float epsilon, "
      "float beta1, float beta2, int step, str? accumulation, *, Tensor? rate=None) -> ()");
  library.def(
      "embedding_bag_grad_apply_(Tensor(a!) table, Tensor(b!)? state1, Tensor(c!)? state2, Tensor grad, "
      "Tensor indices, Tensor offsets, Tensor? per_sample_weights, str combiner, bool include_last_offset, "
      "int? padding_idx, str optimizer, float learning_rate, float epsilon, float beta1, float beta2, int step, "
      "str? accumulation, *, Tensor? rate=None) -> ()");
  // Forwards that make a plan for backward: one waits for the check of the ids, one never waits.
  library.def(
      "embedding_bag_and_plan(Tensor weight, Tensor indices, Tensor offsets, Tensor? per_sample_weights, str mode, "
      "bool include_last_offset, str? accumulation) -> (Tensor pooled, int plan)");
  library.def(
      "embedding_bag_planned(Tensor weight, Tensor indices, Tensor offsets, Tensor? per_sample_weights, str mode, "
      "str? accumulation) -> (Tensor pooled, Tensor report, int plan)");
  library.def(
      "embedding_bag_planned_grad(Tensor grad, int plan, Tensor? per_sample_weights, str mode, str? accumulation) -> "
      "Tensor");
  library.def(
      "embedding_bag_planned_grad_rows(Tensor grad, int plan, Tensor? per_sample_weights, str mode, "
      "str? accumulation) -> (Tensor values, Tensor rows)");
  library.def(
      "embedding_bag_planned_grad_apply_(Tensor(a!) table, Tensor(b!)? state1, Tensor(c!)? state2, Tensor grad, "
      "int plan, Tensor? per_sample_weights, str combiner, str optimizer, float learning_rate, float epsilon, "
      "float beta1, float beta2, int step, str? accumulation, *, Tensor? rate=None) -> ()");
  library.def("check_report(Tensor report) -> ()");
}

template <class Library>
void ImplementOnEveryDevice(Library& library) {
  library.impl("sparse_segment", TORCH_BOX(&SparseSegmentForward));
  library.impl("sparse_segment_grad", TORCH_BOX(&SparseSegmentDenseGrad));
  library.impl("sparse_segment_grad_rows", TORCH_BOX(&SparseSegmentGradRows));
  library.impl("segment", TORCH_BOX(&SegmentForward));
  library.impl("segment_grad", TORCH_BOX(&SegmentGrad));
  library.impl("embedding_bag", TORCH_BOX(&EmbeddingBagForward));
  library.impl("embedding_bag_grad", TORCH_BOX(&EmbeddingBagDenseGrad));
  library.impl("embedding_bag_grad_rows", TORCH_BOX(&EmbeddingBagGradRows));
  library.impl("embedding_bag_weights_grad", TORCH_BOX(&EmbeddingBagWeightsGrad));
  library.impl("embedding_bag_grad_apply_", TORCH_BOX(&EmbeddingBagGradApplyInPlace));
  library.impl("embedding", TORCH_BOX(&EmbeddingForward));
  library.impl("coalesce_rows", TORCH_BOX(&CoalesceRows));
  library.impl("index_add", TORCH_BOX(&IndexAdd));
  library.impl("fill_empty_rows", TORCH_BOX(&FillEmptyRows));
  library.impl("fill_empty_rows_grad", TORCH_BOX(&FillEmptyRowsGrad));
  library.impl("sparse_slice", TORCH_BOX(&SparseSliceForward));
  library.impl("sparse_slice_grad", TORCH_BOX(&SparseSliceBackward));
  library.impl("embedding_bag_and_plan", TORCH_BOX(&EmbeddingBagAndPlan));
  library.impl("embedding_bag_planned", TORCH_BOX(&EmbeddingBagPlanned));
  library.impl("embedding_bag_planned_grad", TORCH_BOX(&EmbeddingBagPlannedGrad));
  library.impl("embedding_bag_planned_grad_rows", TORCH_BOX(&EmbeddingBagPlannedGradRows));
  library.impl("embedding_bag_planned_grad_apply_", TORCH_BOX(&EmbeddingBagPlannedGradApplyInPlace));
  library.impl("check_report", TORCH_BOX(&CheckReport));
  library.impl("apply_rows_", TORCH_BOX(&ApplyRowsInPlace));
  library.impl("sparse_segment_grad_apply_", TORCH_BOX(&SparseSegmentGradApplyInPlace));
}

// Functions of python/raggrad/torch stand in for these on CUDA.
STABLE_TORCH_LIBRARY_IMPL(raggrad, CPU, library) {
  ImplementOnEveryDevice(library);
  library.impl("ascends", TORCH_BOX(&Ascends));
}

STABLE_TORCH_LIBRARY_IMPL(raggrad, CUDA, library) { ImplementOnEveryDevice(library); }
