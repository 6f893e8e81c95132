// Updates of tables on a GPU. Internal to the family.
#pragma once

#include "raggrad/ops/sparse_segment/grad/row_sink.cuh"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/update/optimizer_job.h"

namespace raggrad::sparse_segment::on_cuda {

// A sink that feeds rows of that width to the optimizer.
template <class T>
RowSink<T> UpdateSink(const UpdateProblem& update, int64_t width) noexcept {
  RowSink<T> sink = {};
  sink.optimizer = OptimizerOf(update.update);
  sink.table_type = update.table.dtype;
  sink.update = ReadOptimizer<SumType<T>>(update.update);
  sink.update.table = update.table.data;
  sink.update.width = width;
  return sink;
}

// GradApply for p.coalesced: one kernel, without memory and without waiting. Not for RowwiseAdagrad.
Status ApplyCoalesced(const GradProblem& p, const UpdateProblem& update, const Context& ctx) noexcept;

}  // namespace raggrad::sparse_segment::on_cuda
