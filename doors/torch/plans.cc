#include "plans.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/ops.h>

#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "bags.h"
#include "raggrad/core/error_text.h"
#include "raggrad/core/first_use.h"
#include "rule.h"

namespace raggrad::torch_door {
namespace {

// A plan with the call that made it, whose memory it has.
struct KeptPlan {
  std::unique_ptr<Call> call;
  SegmentPlan plan;
};

// Plans by number. Torch's operators can pass numbers, but no objects.
class Plans {
 public:
  int64_t Keep(KeptPlan plan) {
    auto kept = std::make_shared<const KeptPlan>(std::move(plan));
    const std::scoped_lock lock(mutex_);
    plans_.emplace(++last_, std::move(kept));
    return last_;
  }
  std::shared_ptr<const KeptPlan> Find(int64_t number) const {
    const std::scoped_lock lock(mutex_);
    const auto found = plans_.find(number);
    return found == plans_.end() ? nullptr : found->second;
  }
  void Forget(int64_t number) {
    std::shared_ptr<const KeptPlan> last_use;  // freed without the lock
    const std::scoped_lock lock(mutex_);
    if (const auto found = plans_.find(number); found != plans_.end()) {
      last_use = std::move(found->second);
      plans_.erase(found);
    }
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<int64_t, std::shared_ptr<const KeptPlan>> plans_;
  int64_t last_ = 0;
};

Plans& AllPlans() noexcept {
  static constinit FirstUse<Plans> plans;
  return plans.Get([] { return Plans(); });
}

std::shared_ptr<const KeptPlan> PlanOf(const Call& call, int64_t number) {
  std::shared_ptr<const KeptPlan> kept = AllPlans().Find(number);
  if (kept == nullptr) call.Check(MakeError(Code::kInvalidArgument, "[plan: there is none with number ", number, "]"));
  return kept;
}

SegmentPooling PoolingOf(SegmentCombiner combiner, const std::optional<TensorView>& weights, const SegmentPlan& plan) {
  if (!weights) return combiner;
  TensorView values = *weights;
  if (values.rank() == 1 && values.dim(0) > plan.num_ids()) values.shape = Shape{plan.num_ids()};
  return {combiner, {values, WeightDivisor::kCount}};
}

SegmentPooling PoolingOf(Call& call, std::string_view op, const std::string& mode, const MaybeTensor& weights,
                         const SegmentPlan& plan) {
  std::optional<TensorView> values;
  if (weights) values = call.View(*weights);
  return PoolingOf(CombinerOf(op, "mode", mode), values, plan);
}

TensorView TableView(Call& call, const TorchTensor& weight) {
  TensorView table = call.View(weight);
  if (table.rank() == 0) call.Check(Status(Code::kInvalidArgument, "[weight: expected rows, got a scalar]"));
  return table;
}

// About the device memory that a plan of small bags takes: 24 bytes per id, 12 per bag, and some for the sort.
int64_t ScratchOfPlan(const TorchTensor& indices) { return 32 * indices.numel(); }

// A copy of the plan's report, int64[6].
TorchTensor CopyOfReport(const SegmentPlan& plan) {
  const TensorView report = plan.report();
  const int64_t stride = 1;
  const int32_t kind = report.device.is_cpu() ? aoti_torch_device_type_cpu() : aoti_torch_device_type_cuda();
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_create_tensor_from_blob(const_cast<void*>(report.data), 1, report.shape.dims().data(), &stride, 0,
                                         aoti_torch_dtype_int64(), kind, report.device.number, &handle));
  return ::torch::stable::clone(TorchTensor(handle));
}

}  // namespace

std::tuple<TorchTensor, int64_t> EmbeddingBagAndPlan(const TorchTensor& weight, const TorchTensor& indices,
                                                     const TorchTensor& offsets, const MaybeTensor& per_sample_weights,
                                                     const std::string& mode, bool include_last_offset,
                                                     const MaybeText& accumulation) {
  constexpr std::string_view kOp = "embedding_bag_and_plan";
  auto call = std::make_unique<Call>(kOp, weight, accumulation);
  call->ExpectScratch(ScratchOfPlan(indices));
  const TensorView table = TableView(*call, weight);
  const auto operands = OperandsOf(*call, indices, offsets, per_sample_weights, include_last_offset, {});
  const SegmentCombiner combiner = CombinerOf(kOp, "mode", mode);
  const Context& ctx = call->context();
  Result<Tensor> rows = Tensor();
  const auto pool = [&](const SegmentPlan& plan) {
    rows = SparseSegment(PoolingOf(combiner, operands.weights, plan), table, plan, ctx);
  };
  const auto make = [&] {
    if (include_last_offset) {
      return WithBags(*call, operands, [&](const Bags& bags) {
        return call->Get(SegmentPlan::Make(bags.ids, bags.segment_ids, {table.dim(0), bags.count}, pool, ctx));
      });
    }
    Result<SegmentPlan> plan = SegmentPlan::MakeOfBags(operands.ids, operands.offsets, table.dim(0),
                                                       per_sample_weights.has_value(), pool, ctx);
    if (!plan.ok()) call->Check(CheckOffsets(operands, ctx));
    return call->Get(std::move(plan));
  };
  KeptPlan kept{nullptr, make()};
  TorchTensor pooled = call->Take(call->Get(std::move(rows)));
  kept.call = std::move(call);
  return {std::move(pooled), AllPlans().Keep(std::move(kept))};
}

PlannedRows EmbeddingBagPlanned(const TorchTensor& weight, const TorchTensor& indices, const TorchTensor& offsets,
                                const MaybeTensor& per_sample_weights, const std::string& mode,
                                const MaybeText& accumulation) {
  constexpr std::string_view kOp = "embedding_bag_planned";
  auto call = std::make_unique<Call>(kOp, weight, accumulation);
  call->ExpectScratch(ScratchOfPlan(indices));
  const TensorView table = TableView(*call, weight);
  const BagOperands operands = OperandsOf(*call, indices, offsets, per_sample_weights, false, {});
  const Bags bags = call->Get(CutIntoBags(operands, call->context()));
  KeptPlan kept{nullptr, call->Get(SegmentPlan::MakeWithoutWaiting(
                             bags.ids, bags.segment_ids, {.table_rows = table.dim(0), .num_segments = bags.count},
                             call->context()))};
  const SegmentPooling pooling = PoolingOf(*call, kOp, mode, per_sample_weights, kept.plan);
  TorchTensor pooled = call->Take(call->Get(SparseSegment(pooling, table, kept.plan, call->context())));
  TorchTensor report = CopyOfReport(kept.plan);
  kept.call = std::move(call);
  return {std::move(pooled), std::move(report), AllPlans().Keep(std::move(kept))};
}

TorchTensor EmbeddingBagPlannedGrad(const TorchTensor& grad, int64_t plan, const MaybeTensor& per_sample_weights,
                                    const std::string& mode, const MaybeText& accumulation) {
  constexpr std::string_view kOp = "embedding_bag_planned_grad";
  Call call(kOp, grad, accumulation);
  const auto kept = PlanOf(call, plan);
  const SegmentPooling pooling = PoolingOf(call, kOp, mode, per_sample_weights, kept->plan);
  return call.Take(call.Get(SparseSegmentGrad(pooling, call.View(grad), kept->plan, call.context())));
}

TwoTensors EmbeddingBagPlannedGradRows(const TorchTensor& grad, int64_t plan, const MaybeTensor& per_sample_weights,
                                       const std::string& mode, const MaybeText& accumulation) {
  constexpr std::string_view kOp = "embedding_bag_planned_grad_rows";
  Call call(kOp, grad, accumulation);
  const auto kept = PlanOf(call, plan);
  const SegmentPooling pooling = PoolingOf(call, kOp, mode, per_sample_weights, kept->plan);
  auto rows = call.Get(SparseSegmentGradV2(pooling, call.View(grad), kept->plan, call.context()));
  return {call.Take(std::move(rows.output)), call.Take(std::move(rows.sorted_unique_indices))};
}

void EmbeddingBagPlannedGradApplyInPlace(const TorchTensor& table, const MaybeTensor& state1, const MaybeTensor& state2,
                                         const TorchTensor& grad, int64_t plan, const MaybeTensor& per_sample_weights,
                                         const std::string& combiner, const std::string& optimizer,
                                         double learning_rate, double epsilon, double beta1, double beta2, int64_t step,
                                         const MaybeText& accumulation, const MaybeTensor& rate) {
  constexpr std::string_view kOp = "embedding_bag_planned_grad_apply_";
  Call call(kOp, table, accumulation);
  const auto kept = PlanOf(call, plan);
  const RowUpdate update =
      UpdateOf(call, {optimizer, state1, state2, learning_rate, epsilon, beta1, beta2, step, rate});
  const SegmentPooling pooling = PoolingOf(call, kOp, combiner, per_sample_weights, kept->plan);
  call.Check(
      SparseSegmentGradApply(pooling, call.View(grad), kept->plan, update, TableOf(call, table), call.context()));
}

void CheckReport(const TorchTensor& report) {
  Call call("check_report", report);
  TensorView words = call.View(report);
  if (words.dtype != DType::kInt64) call.Check(Status(Code::kInvalidArgument, "[report: expected int64]"));
  words.dtype = DType::kUInt64;
  call.Get(CheckPadded(words, call.context()));
}

}  // namespace raggrad::torch_door

void raggrad_torch_forget_plan(int64_t plan) noexcept { raggrad::torch_door::AllPlans().Forget(plan); }
