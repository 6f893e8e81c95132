// Results of the operators: all types, bits and shapes; which thread makes copies; names; strict calls; bad operands.
#include <gmock/gmock.h>

#include <algorithm>
#include <future>
#include <thread>

#include "raggrad/ops/batching/test/test_calls.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr DType kTypes[] = {DType::kHalf,  DType::kBFloat16, DType::kFloat32,   DType::kFloat64,
                            DType::kInt8,  DType::kInt16,    DType::kInt32,     DType::kInt64,
                            DType::kUInt8, DType::kUInt16,   DType::kUInt32,    DType::kUInt64,
                            DType::kBool,  DType::kString,   DType::kComplex64, DType::kComplex128};

// Random bits; strings with every byte, some of them empty.
std::shared_ptr<const Tensor> RandomTensor(Generator& random, DType dtype, int64_t rows, int64_t columns) {
  const auto elements = static_cast<size_t>(rows * columns);
  if (dtype == DType::kString) {
    std::vector<std::string> strings(elements);
    for (std::string& string : strings) {
      string.resize(static_cast<size_t>(random.Below(5)));
      for (char& c : string) c = static_cast<char>(random.Below(256));
    }
    return std::make_shared<const Tensor>(TensorOfStrings(Shape{rows, columns}, strings));
  }
  std::string bytes(elements * DTypeSize(dtype), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.Below(dtype == DType::kBool ? 2 : 256));
  return std::make_shared<const Tensor>(TensorOfBytes(dtype, Shape{rows, columns}, bytes));
}

// Compares bytes, because Difference() takes one NaN for another.
bool SameBytes(const TensorView& got, const TensorView& want) {
  if (got.dtype == DType::kString) return Difference(got, want).empty();
  const auto bytes = static_cast<size_t>(*want.shape.NumElements()) * DTypeSize(want.dtype);
  return got.dtype == want.dtype && got.shape == want.shape &&
         (bytes == 0 || std::memcmp(got.data, want.data, bytes) == 0);
}

class BatchingTypes : public ::testing::TestWithParam<DType> {};

TEST_P(BatchingTypes, BitsGoThereAndBack) {
  Generator random(7);
  CallLog<BatchOutput> log;  // outlives the runtime, whose destructor completes the third call
  BatchingRuntime runtime;
  const std::vector<std::shared_ptr<const Tensor>> inputs = {RandomTensor(random, GetParam(), 2, 3),
                                                             RandomTensor(random, GetParam(), 3, 3)};
  for (int i = 0; i < 3; ++i) {  // the third does not fit and displaces the batch of the others
    const BatchCall call{.resource = {"", "r"},
                         .in_tensors = {{inputs[std::min<size_t>(static_cast<size_t>(i), 1)]->view()}},
                         .max_batch_size = 7,
                         .batch_timeout_micros = 1'000'000'000,
                         .allowed_batch_sizes = {7}};
    runtime.BatchAsync(call, log.Record(i));
  }
  ASSERT_NE(log.Await(0), nullptr);
  ASSERT_NE(log.Await(1), nullptr);
  const BatchOutput& owner = **log.Find(1);
  TensorView first_row = inputs[0]->view();
  first_row.shape = Shape{1, 3};
  const Tensor batched = JoinedByHand(first_row, {inputs[0]->view(), inputs[1]->view(), first_row, first_row});
  EXPECT_TRUE(SameBytes(owner.batched_tensors[0].view(), batched.view()));

  for (int i = 1; i >= 0; --i) {  // the owner brings the batch, the other call takes its rows
    const BatchOutput& output = **log.Find(i);
    const Result<Tensor> rows = runtime.Unbatch(
        {{"", "r"}, output.batched_tensors[0].view(), output.batch_index.view(), output.id.view(), 1000000});
    ASSERT_THAT(rows, IsOk());
    EXPECT_TRUE(SameBytes(rows->view(), inputs[static_cast<size_t>(i)]->view()));
  }
  for (int i = 0; i < 2; ++i) {
    const BatchOutput& output = **log.Find(i);
    const Result<Tensor> joined = runtime.UnbatchGrad({{"", "r"},
                                                       output.batched_tensors[0].view(),
                                                       output.batch_index.view(),
                                                       {inputs[static_cast<size_t>(i)]->view()},
                                                       output.id.view()});
    ASSERT_THAT(joined, IsOk());
    const std::vector<TensorView> pieces = {inputs[0]->view(), inputs[1]->view()};
    EXPECT_TRUE(SameBytes(joined->view(), JoinedByHand(pieces[0], i == 1 ? pieces : std::vector<TensorView>()).view()));
  }
}

INSTANTIATE_TEST_SUITE_P(All, BatchingTypes, ::testing::ValuesIn(kTypes),
                         [](const auto& type) { return std::string(DTypeName(type.param)); });

// Large enough to be copied by several threads.
TEST(BatchingValuesTest, LargeBatches) {
  Generator random(9);
  const std::unique_ptr<Executor> pool = MakeThreadPool(7);
  Context ctx;
  ctx.executor = pool.get();
  BatchingRuntime runtime(ctx);
  const std::vector<std::shared_ptr<const Tensor>> pieces = {RandomTensor(random, DType::kInt8, 1001, 999),
                                                             RandomTensor(random, DType::kInt8, 1, 999),
                                                             RandomTensor(random, DType::kInt8, 2003, 999)};
  EXPECT_THAT(runtime.UnbatchGrad(GradOperands(0, pieces[0]).call()), IsOk());
  EXPECT_THAT(runtime.UnbatchGrad(GradOperands(2, pieces[2]).call()), IsOk());
  const Result<Tensor> joined = runtime.UnbatchGrad(GradOperands(1, pieces[1], {2, 1, 0}).call());
  ASSERT_THAT(joined, IsOk());
  const Tensor expected = JoinedByHand(pieces[0]->view(), {pieces[2]->view(), pieces[1]->view(), pieces[0]->view()});
  EXPECT_TRUE(SameBytes(joined->view(), expected.view()));
}

TEST(BatchingValuesTest, ShapesOfManyDimensions) {
  BatchingRuntime runtime;
  const std::vector<int64_t> dims = {2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3};
  const auto piece = std::make_shared<const Tensor>(TensorOf<float>({1, 2, 3, 4, 5, 6}, Shape(dims)));
  EXPECT_THAT(runtime.UnbatchGrad(GradOperands(0, piece).call()), IsOk());
  const Result<Tensor> joined = runtime.UnbatchGrad(GradOperands(1, piece, {0, 1}).call());
  ASSERT_THAT(joined, IsOk());
  EXPECT_EQ(joined->shape(), Shape::WithDim0(4, piece->shape().tail()));
}

// Remembers which thread asked for the memory of the last output.
class WhoAllocates final : public Allocator {
 public:
  void* Allocate(size_t bytes) noexcept override {
    last_ = std::this_thread::get_id();
    ++requests_;
    return DefaultAllocator().Allocate(bytes);
  }
  void Deallocate(void* pointer, size_t bytes) noexcept override { DefaultAllocator().Deallocate(pointer, bytes); }
  std::thread::id last() const noexcept { return last_; }
  int requests() const noexcept { return requests_; }

 private:
  std::atomic<std::thread::id> last_;
  std::atomic<int> requests_{0};
};

void WaitForWaiters(const BatchingRuntime& runtime, ResourceKind kind) {
  for (;;) {
    const auto statistics = runtime.Statistics(kind, {"", "r"});
    if (statistics.ok() && statistics->waiters == 1) return;
    std::this_thread::yield();
  }
}

TEST(BatchingWorkTest, ABlockedOwnerJoinsItsBatchItself) {
  WhoAllocates allocator;
  Context ctx;
  ctx.allocator = &allocator;
  BatchingRuntime runtime(ctx);
  std::thread::id joined_by;
  std::thread owner([&] {
    EXPECT_THAT(runtime.UnbatchGrad(GradOperands(1, FloatPiece(1, 2, 0), {1, 2}).call()), IsOk());
    joined_by = allocator.last();
    EXPECT_EQ(joined_by, std::this_thread::get_id());
  });
  WaitForWaiters(runtime, ResourceKind::kUnbatchGrad);
  EXPECT_EQ(allocator.requests(), 0) << "an owner that is blocked keeps its own piece alive";
  GradOperands piece(2, FloatPiece(1, 2, 0));
  piece.call().grad.keep_alive = std::make_shared<int>(0);
  EXPECT_THAT(runtime.UnbatchGrad(piece.call()), IsOk());
  owner.join();
  EXPECT_EQ(allocator.requests(), 1) << "the joined gradient, and nothing else";
}

TEST(BatchingWorkTest, AnAsynchronousOwnersBatchIsJoinedByWhoeverCompletesIt) {
  WhoAllocates allocator;
  Context ctx;
  ctx.allocator = &allocator;
  BatchingRuntime runtime(ctx);
  auto owner = runtime.UnbatchGradFuture(GradOperands(1, FloatPiece(1, 2, 0), {1, 2}).call());
  std::thread([&] {
    GradOperands piece(2, FloatPiece(1, 2, 0));
    EXPECT_THAT(runtime.UnbatchGrad(piece.call()), IsOk());
    EXPECT_EQ(allocator.last(), std::this_thread::get_id());
  }).join();
  EXPECT_THAT(owner.get(), IsOk());
}

TEST(BatchingWorkTest, ABlockedOwnerOfABatchIsNotServedByTheTimer) {
  WhoAllocates allocator;
  Context ctx;
  ctx.allocator = &allocator;
  BatchingRuntime runtime(ctx);
  const Tensor row = TensorOf<float>({1}, Shape{1, 1});
  const BatchCall call{
      .resource = {"", "r"}, .in_tensors = {{row.view()}}, .max_batch_size = 10, .batch_timeout_micros = 1000};
  EXPECT_THAT(runtime.Batch(call), IsOk());
  EXPECT_EQ(allocator.last(), std::this_thread::get_id());
  EXPECT_EQ(allocator.requests(), 3) << "the rows, the index and the id";
}

TEST(BatchingWorkTest, CompleteAtOnceMeansNoCopyButTheResult) {
  WhoAllocates allocator;
  Context ctx;
  ctx.allocator = &allocator;
  BatchingRuntime runtime(ctx);
  EXPECT_THAT(runtime.UnbatchGrad(GradOperands(1, FloatPiece(1, 2, 0), {1}).call()), IsOk());
  EXPECT_EQ(allocator.requests(), 1);
}

TEST(BatchingNamesTest, AreTakenLiterally) {
  CallLog<Tensor> log;
  BatchingRuntime runtime;
  const GradOperands owner(1, FloatPiece(1, 2, 0), {1, 2});
  const std::vector<ResourceName> names = {{"", "r"},  {"localhost", "r"}, {"", "R"},          {"r", ""},
                                           {"", "r "}, {"", "Unbatch"},    {"", "UnbatchGrad"}};
  for (size_t i = 0; i < names.size(); ++i) {
    UnbatchGradCall call = owner.call();
    call.resource = names[i];
    runtime.UnbatchGradAsync(call, log.Record(static_cast<int>(i)));
  }
  EXPECT_EQ(log.size(), 0U);
  GradOperands piece(2, FloatPiece(1, 2, 0));
  piece.call().resource = {};  // the operator's own name
  EXPECT_THAT(runtime.UnbatchGrad(piece.call()), IsOk());
  EXPECT_EQ(log.TakeNew(), std::vector<int>{6});
}

TEST(BatchingStrictTest, RefusesWhatIsMostLikelyAMistake) {
  BatchingRuntime runtime;
  const auto strict = [&](GradOperands operands, const std::function<void(GradOperands&)>& change) {
    operands.call().strict = true;
    operands.call().waiting.timeout = WaitTime(0);
    change(operands);
    return runtime.UnbatchGrad(operands.call());
  };
  const GradOperands owner(1, FloatPiece(1, 2, 0), {1});
  const GradOperands other(5, FloatPiece(1, 2, 0));
  const auto index = [](std::vector<int64_t> values, Shape shape) {
    return std::make_shared<const Tensor>(TensorOf(values, std::move(shape)));
  };
  EXPECT_THAT(strict(owner, [](GradOperands&) {}), IsOk());
  EXPECT_THAT(strict(owner, [&](GradOperands& o) { o.SetIndex(Index({2})); }),
              StatusIs(Code::kInvalidArgument, HasSubstr("not among the keys")));
  EXPECT_THAT(strict(owner,
                     [&](GradOperands& o) {
                       o.SetIndex(index({1, 0, 1}, Shape{1, 3, 1}));
                     }),
              StatusIs(Code::kInvalidArgument, HasSubstr("expected shape [calls,3]")));
  EXPECT_THAT(strict(owner,
                     [&](GradOperands& o) {
                       o.SetIndex(index({1, 1, 2}, Shape{1, 3}));
                     }),
              StatusIs(Code::kInvalidArgument, HasSubstr("a range that starts at 0")));
  EXPECT_THAT(strict(owner,
                     [&](GradOperands& o) {
                       o.SetIndex(index({1, 0, 2}, Shape{1, 3}));
                     }),
              StatusIs(Code::kInvalidArgument, HasSubstr("ends by 1")));
  EXPECT_THAT(strict(owner, [](GradOperands& o) { o.call().original_input.shape = Shape{}; }),
              StatusIs(Code::kInvalidArgument, HasSubstr("original_input")));
  EXPECT_THAT(strict(owner,
                     [](GradOperands& o) {
                       o.call().original_input.shape = Shape{3, 0};
                     }),
              StatusIs(Code::kInvalidArgument, HasSubstr("rows without elements")));
  EXPECT_THAT(strict(other, [&](GradOperands& o) { o.SetIndex(Index({1})); }),
              StatusIs(Code::kInvalidArgument, HasSubstr("[0,3]")));
  EXPECT_THAT(strict(GradOperands(1, FloatPiece(2, 2, 0), {1}), [](GradOperands&) {}),
              StatusIs(Code::kInvalidArgument, HasSubstr("the range has 1 rows")));
  EXPECT_THAT(strict(owner, [](GradOperands&) {}), IsOk()) << "nothing was left behind";
}

TEST(BatchingStrictTest, ComparesPiecesWithTheirRanges) {
  CallLog<Tensor> log;
  BatchingRuntime runtime;
  GradOperands owner(1, FloatPiece(1, 2, 0), {1, 2});
  owner.call().strict = true;
  runtime.UnbatchGradAsync(owner.call(), log.Record(0));
  EXPECT_EQ(log.Find(0), nullptr);
  EXPECT_THAT(runtime.UnbatchGrad(GradOperands(2, FloatPiece(5, 2, 0)).call()), IsOk());
  ASSERT_NE(log.Find(0), nullptr);
  EXPECT_THAT(*log.Find(0), StatusIs(Code::kInvalidArgument, HasSubstr("the piece of key 2 has 5")));
}

TEST(BatchingErrorsTest, OperandsThatCannotBeRead) {
  BatchingRuntime runtime;
  const auto with = [&](const std::function<void(UnbatchGradCall&)>& change) {
    GradOperands operands(1, FloatPiece(1, 2, 0), {1});
    change(operands.call());
    return runtime.UnbatchGrad(operands.call());
  };
  EXPECT_THAT(with([](UnbatchGradCall& c) { c.id.data = nullptr; }), StatusIs(Code::kInvalidArgument, HasSubstr("id")));
  EXPECT_THAT(with([](UnbatchGradCall& c) { c.grad.view.data = nullptr; }), StatusIs(Code::kInvalidArgument, _));
  EXPECT_THAT(with([](UnbatchGradCall& c) { c.grad.view.shape = Shape{-1, 2}; }), StatusIs(Code::kInvalidArgument, _));
  EXPECT_THAT(with([](UnbatchGradCall& c) { c.id.dtype = DType::kInt32; }),
              StatusIs(Code::kInvalidArgument, HasSubstr("cannot compute UnbatchGrad as input #3(zero-based) was "
                                                         "expected to be a int64 tensor but is a int32 tensor")));
  EXPECT_THAT(with([](UnbatchGradCall& c) { c.grad.view.dtype = DType::kInt32; }),
              StatusIs(Code::kInvalidArgument, HasSubstr("input #2(zero-based) was expected to be a float tensor")));
  EXPECT_THAT(with([](UnbatchGradCall& c) { c.id.device = Device::Cuda(); }), StatusIs(Code::kInvalidArgument, _));
  EXPECT_THAT(with([](UnbatchGradCall& c) {
                c.original_input.device = c.grad.view.device = Device{static_cast<DeviceKind>(10), 0};
              }),
              StatusIs(Code::kUnimplemented, _));
  EXPECT_THAT(runtime.Statistics(ResourceKind::kUnbatchGrad, {"", "r"}), StatusIs(Code::kNotFound, _))
      << "a call that is refused makes no resource";
  EXPECT_THAT(with([](UnbatchGradCall& c) { c.grad.view.data = c.grad.view.As<char>() + 2; }),
              StatusIs(Code::kInvalidArgument, HasSubstr("not aligned [grad")));
  EXPECT_THAT(runtime.Batch({.resource = {}, .in_tensors = {}}),
              StatusIs(Code::kInvalidArgument, HasSubstr("minimum 1")));
  const Tensor row = TensorOf<float>({1}, Shape{1, 1});
  EXPECT_THAT(
      runtime.Batch({.resource = {}, .in_tensors = {{row.view()}}, .num_batch_threads = 20000, .max_batch_size = 1}),
      StatusIs(Code::kInvalidArgument, HasSubstr("num_batch_threads")));
}

// Expects that each operator, and Batch with a row of padding, refuses a row of strings. It has a keep-alive, so that
// only the join would copy it.
void ExpectRefused(std::span<const String> row, Code code, const std::string& text) {
  const auto count = static_cast<int64_t>(row.size());
  const SharedView strings = {TensorView::Of(row.data(), Shape{1, count}), std::make_shared<int>(0)};
  const auto index = Index({1});
  BatchingRuntime runtime;
  EXPECT_THAT(runtime.Batch({.resource = {}, .in_tensors = {strings}, .max_batch_size = 1}),
              StatusIs(code, AllOf(StartsWith("Batch: "), HasSubstr(text))));
  EXPECT_THAT(runtime.Batch({.resource = {}, .in_tensors = {strings}, .max_batch_size = 2, .allowed_batch_sizes = {2}}),
              StatusIs(code, AllOf(StartsWith("Batch: "), HasSubstr(text))));
  EXPECT_THAT(runtime.Unbatch({{}, strings.view, index->view(), TensorView::Scalar(int64_t{1})}),
              StatusIs(code, AllOf(StartsWith("Unbatch: "), HasSubstr(text))));
  EXPECT_THAT(runtime.UnbatchGrad({{}, strings.view, index->view(), strings, TensorView::Scalar(int64_t{1})}),
              StatusIs(code, AllOf(StartsWith("UnbatchGrad: "), HasSubstr(text))));
}

TEST(BatchingErrorsTest, HostileStrings) {
  ExpectRefused(std::vector<String>{{"a", 1}, {nullptr, 3}}, Code::kInvalidArgument,
                "[1]: expected 3 characters, got a null pointer]");
  // More characters than can be counted.
  ExpectRefused(std::vector<String>{{"a", SIZE_MAX}, {"b", 2}}, Code::kResourceExhausted,
                "OOM when allocating tensor with shape[");
  ExpectRefused(std::vector<String>{{"a", SIZE_MAX / 2 + 1}}, Code::kResourceExhausted,
                "OOM when allocating tensor with shape[");
}

}  // namespace
}  // namespace raggrad::testing
