// A host program must not notice the library on its GPU: no operator breaks the capture of a stream or touches the
// device's default memory pool.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "raggrad/raggrad.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/captured_graph.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

using ::testing::HasSubstr;

struct Operator {
  std::string name;
  std::function<Status(const Context&)> call;
};

// A small call of every operator that takes device memory.
class GuestCudaTest : public GpuTest {
 protected:
  struct Operands {
    OnDevice matrix{Array<float>({1, 2, 3}, Shape{3, 1})};
    OnDevice vector{Array<float>({1, 2, 3})};
    OnDevice number{TensorView::Scalar(kOne)};
    OnDevice ids{Array<int32_t>({0, 1, 1})};
    OnDevice segments{Array<int32_t>({0, 1, 2})};
    OnDevice map{Array<int64_t>({0, 1, 2})};
    OnDevice indices{Array<int64_t>({0, 1, 3}, Shape{3, 1})};
    OnDevice table{Array<float>({1, 2, 3, 4}, Shape{4, 1})};
    Result<SegmentPlan> plan = SegmentPlan::Make(ids, segments, {.table_rows = 4, .num_segments = 3});
    Result<SparseSegmentGradV2PaddedOutput> padded =
        SparseSegmentGradV2Padded(SegmentCombiner::kMean, matrix, ids, segments, TensorView::Scalar(kRows), 3);
    std::vector<std::optional<RaggedView>> pieces{RaggedView{{}, vector.view()}, RaggedView{{}, vector.view()}};
    BatchingRuntime runtime;

    VariantArrayView variant() const { return {Shape{2}, pieces}; }
    MutableTensorView mutable_table() {
      return {table.tensor().data(), table.view().dtype, table.view().shape, Device::Cuda()};
    }
  };

  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) operands_ = std::make_unique<Operands>();
  }

  // Operators that wait for their stream, or let it read descriptions that they made in host memory.
  std::vector<Operator> Waiting() {
    Operands& o = *operands_;
    return {
        {"SparseSegmentGradV2",
         [&](const Context& ctx) {
           return SparseSegmentGradV2(kMean, o.matrix, o.ids, o.segments, dim0_, ctx).status();
         }},
        {"SparseSegmentGrad",
         [&](const Context& ctx) {
           return SparseSegmentGrad(kMean, o.matrix, o.ids, o.segments, dim0_, ctx).status();
         }},
        {"SparseSegmentGradApply",
         [&](const Context& ctx) {
           return SparseSegmentGradApply(kMean, o.matrix, o.ids, o.segments, Sgd{0.5}, o.mutable_table(), ctx);
         }},
        {"CheckPadded", [&](const Context& ctx) { return CheckPadded(*o.padded, ctx).status(); }},
        {"SparseSegment",
         [&](const Context& ctx) { return SparseSegment(kMean, o.table, o.ids, o.segments, ctx).status(); }},
        {"SegmentPlan::Make",
         [&](const Context& ctx) {
           return SegmentPlan::Make(o.ids, o.segments, {.table_rows = 4, .num_segments = 3}, ctx).status();
         }},
        {"SegmentPlan::CheckMadeFrom",
         [&](const Context& ctx) { return o.plan->CheckMadeFrom(o.ids, o.segments, ctx); }},
        {"ToDense",
         [&](const Context& ctx) {
           return ToDense({o.matrix, o.ids, 4}, ctx).status();
         }},
        {"Coalesce",
         [&](const Context& ctx) {
           return Coalesce({o.matrix, o.ids, 4}, ctx).status();
         }},
        {"ApplyRows",
         [&](const Context& ctx) {
           return ApplyRows({o.matrix, o.segments, 4}, Sgd{0.5}, o.mutable_table(), ctx);
         }},
        {"SparseFillEmptyRows",
         [&](const Context& ctx) {
           return SparseFillEmptyRows(o.indices, o.vector, Array<int64_t>({5}), o.number, ctx).status();
         }},
        {"SparseFillEmptyRowsGrad",
         [&](const Context& ctx) { return SparseFillEmptyRowsGrad(o.map, o.vector, ctx).status(); }},
        {"SparseSlice",
         [&](const Context& ctx) {
           const Array<int64_t> shape({5}), start({1}), size({3});
           return SparseSlice(o.indices, o.vector, shape, start, size, ctx).status();
         }},
        {"SparseSliceGrad",
         [&](const Context& ctx) {
           return SparseSliceGrad(o.vector, o.indices, Array<int64_t>({0}), o.indices, ctx).status();
         }},
        {"RaggedTensorToVariant",
         [&](const Context& ctx) { return RaggedTensorToVariant({}, o.matrix, true, ctx).status(); }},
        {"RaggedTensorFromVariant",
         [&](const Context& ctx) {
           return RaggedTensorFromVariant(o.variant(), 0, 1, DType::kFloat32, DType::kInt64, ctx).status();
         }},
        {"RaggedTensorToVariantGradient",
         [&](const Context& ctx) {
           const Array<int64_t> splits({0, 3, 6});
           const Array<int32_t> shape({6});
           return RaggedTensorToVariantGradient(o.variant(), splits, shape, DType::kFloat32, ctx).status();
         }},
        {"UnbatchGrad", [&](const Context& ctx) { return UnbatchGrad(ctx).status(); }},
        {"CopyTensor to the host",
         [&](const Context& ctx) { return CopyTensor(o.vector, Device::Cpu(), ctx).status(); }},
        {"CopyTensor to the device",
         [&](const Context& ctx) {
           return CopyTensor(Array<float>({1, 2}), Device::Cuda(), ctx).status();
         }},
    };
  }

  // Operators that only queue work.
  std::vector<Operator> Queueing() {
    Operands& o = *operands_;
    return {
        {"SparseSegmentGradV2Padded",
         [&](const Context& ctx) {
           return SparseSegmentGradV2Padded(kMean, o.matrix, o.ids, o.segments, dim0_, 3, ctx).status();
         }},
        {"CoalescePadded",
         [&](const Context& ctx) {
           return CoalescePadded({o.matrix, o.ids, 4}, 3, ctx).status();
         }},
        {"SparseFillEmptyRowsPadded",
         [&](const Context& ctx) {
           return SparseFillEmptyRowsPadded(o.indices, o.vector, Array<int64_t>({5}), o.number, 8, ctx).status();
         }},
        {"RaggedFillEmptyRowsPadded",
         [&](const Context& ctx) {
           return RaggedFillEmptyRowsPadded(o.map, o.vector, TensorView::Scalar(kId), o.number, 10, ctx).status();
         }},
        {"SparseSlicePadded",
         [&](const Context& ctx) {
           const Array<int64_t> shape({5}), start({1}), size({3});
           return SparseSlicePadded(o.indices, o.vector, shape, start, size, 3, ctx).status();
         }},
        {"SparseSegmentGradV2 with a plan",
         [&](const Context& ctx) { return SparseSegmentGradV2(kMean, o.matrix, *o.plan, ctx).status(); }},
        {"SparseSegmentGrad with a plan",
         [&](const Context& ctx) { return SparseSegmentGrad(kMean, o.matrix, *o.plan, ctx).status(); }},
        {"SparseSegmentGradApply with a plan",
         [&](const Context& ctx) {
           return SparseSegmentGradApply(kMean, o.matrix, *o.plan, Sgd{0.5}, o.mutable_table(), ctx);
         }},
        {"SparseSegment with a plan",
         [&](const Context& ctx) { return SparseSegment(kMean, o.table, *o.plan, ctx).status(); }},
    };
  }

 private:
  static constexpr SegmentCombiner kMean = SegmentCombiner::kMean;
  static constexpr float kOne = 1;
  static constexpr int32_t kRows = 4;
  static constexpr int64_t kId = 7;

  Result<Tensor> UnbatchGrad(const Context& ctx) {
    const Array<int64_t> index({kId, 0, 3}, Shape{1, 3});
    const TensorView original = TensorView::Of<float>(nullptr, Shape{1, 1});
    return operands_->runtime.UnbatchGrad({.resource = {"", "guest"},
                                           .original_input = original,
                                           .batch_index = index,
                                           .grad = {operands_->matrix.view()},
                                           .id = TensorView::Scalar(kId),
                                           .stream = ctx.stream});
  }

  const TensorView dim0_ = TensorView::Scalar(kRows);
  std::unique_ptr<Operands> operands_;
};

// Captures the work that f() queues. Returns the graph's number of nodes, or -1 if there is no graph.
template <class F>
int64_t Capture(const CudaStream& stream, const F& f) {
  constexpr int kThreadLocal = 1;
  void* graph = nullptr;
  CallDriver("cuStreamBeginCapture_v2", stream.handle(), kThreadLocal);
  f();
  CallDriver("cuStreamEndCapture", stream.handle(), &graph);
  if (graph == nullptr) return -1;
  size_t nodes = 0;
  CallDriver("cuGraphGetNodes", graph, static_cast<void*>(nullptr), &nodes);
  CallDriver("cuGraphDestroy", graph);
  return static_cast<int64_t>(nodes);
}

TEST_F(GuestCudaTest, OperatorsThatWaitAreRefusedWhileTheirStreamIsCaptured) {
  const CudaStream stream;
  const Context ctx = stream.MakeContext();
  for (const Operator& op : Waiting()) {
    SCOPED_TRACE(op.name);
    EXPECT_THAT(op.call(ctx), IsOk());  // CUDA loads kernels when they first run
    const int64_t nodes = Capture(stream, [&] {
      EXPECT_THAT(op.call(ctx), StatusIs(Code::kInvalidArgument, HasSubstr("expected one that is not being captured")));
      constexpr int kActive = 1;
      int status = -1;
      CallDriver("cuStreamIsCapturing", stream.handle(), &status);
      EXPECT_EQ(status, kActive) << "the call has ended the capture";
    });
    EXPECT_EQ(nodes, 0) << "the call has queued something";
    EXPECT_THAT(op.call(ctx), IsOk());
  }
}

TEST_F(GuestCudaTest, TheDefaultStreamIsRefusedWhileOneThatWaitsForItIsCaptured) {
  const CudaStream waits_for_default(CudaStream::kBlocking);
  for (const Operator& op : Waiting()) {
    SCOPED_TRACE(op.name);
    EXPECT_THAT(op.call({}), IsOk());
    const int64_t nodes = Capture(waits_for_default, [&] {
      EXPECT_THAT(op.call({}), StatusIs(Code::kInvalidArgument, HasSubstr("expected one that is not being captured")));
    });
    EXPECT_EQ(nodes, 0);
    EXPECT_THAT(op.call({}), IsOk());
  }
}

TEST_F(GuestCudaTest, OperatorsThatOnlyQueueCanBeCaptured) {
  const CudaStream stream;
  DeviceArena arena(size_t{1} << 22);
  Context ctx = stream.MakeContext();
  ctx.device_allocator = &arena;
  for (const Operator& op : Queueing()) {
    SCOPED_TRACE(op.name);
    EXPECT_THAT(op.call(ctx), IsOk());
    EXPECT_GT(Capture(stream, [&] { EXPECT_THAT(op.call(ctx), IsOk()); }), 0);
    EXPECT_THAT(op.call(ctx), IsOk());
  }
  CallDriver("cuStreamSynchronize", stream.handle());
}

// The pool belongs to the host program, which may have configured it.
TEST_F(GuestCudaTest, TheDefaultMemoryPoolIsNotTouched) {
  for (const Operator& op : Waiting()) EXPECT_THAT(op.call({}), IsOk()) << op.name;
  for (const Operator& op : Queueing()) EXPECT_THAT(op.call({}), IsOk()) << op.name;
  int device = -1;
  void* pool = nullptr;
  CallDriver("cuCtxGetDevice", &device);
  CallDriver("cuDeviceGetDefaultMemPool", &pool, device);
  constexpr int kReleaseThreshold = 4, kReservedHigh = 6, kUsedHigh = 8;
  for (const int attribute : {kReleaseThreshold, kReservedHigh, kUsedHigh}) {
    uint64_t value = 1;
    CallDriver("cuMemPoolGetAttribute", pool, attribute, static_cast<void*>(&value));
    EXPECT_EQ(value, 0U) << "attribute " << attribute;
  }
}

}  // namespace
}  // namespace raggrad::testing
