// SegmentPlan: everything about indices and segment ids that gradients, forwards and updates need, made once.
//
//   Result<SegmentPlan> plan =
//       SegmentPlan::Make(indices, segment_ids, {.table_rows = 1'000'000, .num_segments = 65'536});
//   Result<Tensor> pooled = SparseSegment(SegmentCombiner::kMean, table, *plan);
//   Result<SparseSegmentGradV2Output> grad = SparseSegmentGradV2(SegmentCombiner::kMean, d_pooled, *plan);
//
// The ids are checked, sorted by row and counted. Every function that takes a plan skips that part, which is a third to
// a half of a gradient, and gives the bits of the function without a plan. A plan can be made early (in a data loader)
// and used for several tables and weights, from several threads at a time.
//
// A plan lies in the memory of its ids, host or device, and works with operands there. On a GPU, Make waits until the
// ids are checked, while the GPU goes on and sorts them: some 40 us for a million. Calls that use the plan may be on
// any stream. Only num_unique(), SparseSegmentGradV2 and calls on another stream wait for the sort, if it is not done.
// The plan may be destroyed as soon as its calls are queued, but must outlive a CUDA graph that captured one of them.
//
// Memory: 24 bytes per id (28 for int64 indices of 2^31 rows and more), 8 per unique row and 8 per segment, from the
// context's allocator, which must outlive the plan. Make takes no more, MakeWithoutWaiting 48 bytes for a report. On
// a GPU: README.md beside this file, which has the errors, too.
#pragma once

#include <memory>

#include "raggrad/core/function_ref.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::sparse_segment {
struct SegmentIds;
}

#pragma GCC visibility push(default)
namespace raggrad {

class SegmentPlan {
 public:
  struct Sizes {
    int64_t table_rows;    // in [0, 2^32], on a GPU in [0, 2^31)
    int64_t num_segments;  // in [0, 2^31)
  };

  // indices and segment_ids: [n], int32 or int64, in [0, table_rows) and [0, num_segments). Segment ids may come in any
  // order, but a forward needs a plan of ascending ones. INVALID_ARGUMENT names the first id that is out of range.
  static Result<SegmentPlan> Make(const TensorView& indices, const TensorView& segment_ids, const Sizes& sizes,
                                  const Context& ctx = {}) noexcept;

  // Like Make, but calls `meanwhile` with the plan while it waits for a GPU. Forwards that are queued there run as soon
  // as the plan is made, while the host still learns whether the ids are good. `meanwhile` is called once, unless Make
  // fails before. If Make returns an error afterwards, the results of these forwards mean nothing. Segment ids must
  // ascend. In host memory `meanwhile` is called last.
  using Meanwhile = FunctionRef<void(const SegmentPlan&)>;
  static Result<SegmentPlan> Make(const TensorView& indices, const TensorView& segment_ids, const Sizes& sizes,
                                  Meanwhile meanwhile, const Context& ctx = {}) noexcept;

  // The same for bags, as PyTorch's EmbeddingBag has them: bag b has the ids from offsets[b] to the next offset or the
  // end, and its number is their segment id. offsets: int32 or int64, ascending from 0 to at most the number of ids. On
  // a GPU bad offsets give an error that does not say what is wrong with them (CheckOffsets of bags.h does). A plan for
  // calls without weights takes 12 bytes less per id.
  static Result<SegmentPlan> MakeOfBags(const TensorView& ids, const TensorView& offsets, int64_t table_rows,
                                        bool weighted, Meanwhile meanwhile, const Context& ctx = {}) noexcept;

  // Like Make, but never waits for a GPU, and can be captured in a CUDA graph: a replay plans the ids of that moment.
  // The ids are checked on the device, and CheckPadded(plan.report()) returns the error of Make, or the number of rows
  // that a gradient has. If there is an error, results that used the plan mean nothing, but updates have changed
  // nothing, and nothing was read or written out of bounds. Segment ids must ascend. num_unique() is -1, and
  // SparseSegmentGradV2 refuses the plan. In host memory it is Make.
  static Result<SegmentPlan> MakeWithoutWaiting(const TensorView& indices, const TensorView& segment_ids,
                                                const Sizes& sizes, const Context& ctx = {}) noexcept;

  SegmentPlan(SegmentPlan&&) noexcept;
  SegmentPlan& operator=(SegmentPlan&&) noexcept;
  ~SegmentPlan();

  int64_t num_ids() const noexcept;
  int64_t num_unique() const noexcept;  // rows that a gradient has; -1 if the GPU fails
  TensorView report() const noexcept;   // of MakeWithoutWaiting (ops/padded.h), in the plan's memory
  Sizes sizes() const noexcept;
  bool ascending() const noexcept;  // whether the segment ids ascend

  // Checks that the plan was made from these ids, in this order. INVALID_ARGUMENT names the first that differs. Reads
  // all of them: 1.3 million pairs take about 1 ms.
  Status CheckMadeFrom(const TensorView& indices, const TensorView& segment_ids,
                       const Context& ctx = {}) const noexcept;

  struct State;  // internal
  const State& state() const noexcept { return *state_; }

 private:
  explicit SegmentPlan(std::unique_ptr<State> state) noexcept;
  struct How;
  static Result<SegmentPlan> Make(const sparse_segment::SegmentIds& ids, const How& how, const Context& ctx) noexcept;

  std::unique_ptr<State> state_;
};

// grad: [plan.sizes().num_segments, inner...]
Result<SparseSegmentGradV2Output> SparseSegmentGradV2(const SegmentPooling& pooling, const TensorView& grad,
                                                      const SegmentPlan& plan, const Context& ctx = {}) noexcept;
// out: [plan.sizes().table_rows, inner...]
Result<Tensor> SparseSegmentGrad(const SegmentPooling& pooling, const TensorView& grad, const SegmentPlan& plan,
                                 const Context& ctx = {}) noexcept;
// data: [plan.sizes().table_rows, inner...]; out: [plan.sizes().num_segments, inner...]
Result<Tensor> SparseSegment(const SegmentPooling& pooling, const TensorView& data, const SegmentPlan& plan,
                             const Context& ctx = {}) noexcept;

// grad: [plan.sizes().num_segments, inner...]; data: [plan.sizes().table_rows, inner...]; out: [plan.num_ids()]
Result<Tensor> SparseSegmentWeightsGrad(const SegmentPooling& pooling, const TensorView& grad, const TensorView& data,
                                        const SegmentPlan& plan, const Context& ctx = {}) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
