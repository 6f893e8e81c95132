// Runs every operator in every floating-point environment that a caller may have: the results have the usual bits, and
// the caller's environment stays as it was, flags included.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "raggrad/cpu/convert.h"
#include "raggrad/raggrad.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/odd_environment.h"
#include "raggrad/testing/owned.h"
#include "raggrad/testing/settings.h"

namespace raggrad {
namespace {

using testing::Array;
using testing::Generator;
using testing::OddEnvironment;
using testing::ScopedEnvironment;

using Outputs = std::vector<Tensor>;

struct Case {
  std::string name;
  std::function<Result<Outputs>(const Context&)> run;
  bool for_every_isa = true;  // false: its code is compiled once
};

template <class... Ts>
Outputs List(Ts&&... tensors) {
  Outputs outputs;
  (outputs.push_back(std::forward<Ts>(tensors)), ...);
  return outputs;
}

Result<Outputs> One(Result<Tensor> result) {
  if (!result.ok()) return result.status();
  return List(*std::move(result));
}

// An error is a result, too: its text.
Outputs ResultOf(const Case& c, const Context& ctx) {
  Result<Outputs> result = c.run(ctx);
  if (result.ok()) return *std::move(result);
  return List(testing::TensorOfStrings(Shape{}, {std::string(result.status().message())}));
}

// Mostly ordinary values, so that sums have bits to lose, and some that raise every exception.
template <class T>
std::vector<T> MixedValues(Generator& random, int64_t count) {
  std::vector<T> values = random.Values<T>(count);
  for (int64_t i = 0; i < count / 64; ++i) values[static_cast<size_t>(random.Below(count))] = random.Hostile<T>();
  return values;
}

// Ids, gradients and tables of one type, large enough that tasks are handed to other threads.
template <class T>
struct Batch {
  static constexpr int64_t kIds = 36000, kTableRows = 20000, kSegments = 33000, kWidth = 11;

  Batch() {
    for (size_t i = 0; i < segments.values.size(); ++i) ascending.values[i] = static_cast<int32_t>(i * 11 / 12);
    for (Array<State>* state : {&state1, &state2}) {
      for (State& x : state->values) x = x < 0 ? -x : x;
    }
  }

  Generator random{5};
  using State = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Array<T> grad{MixedValues<T>(random, kSegments* kWidth), Shape{kSegments, kWidth}};
  Array<T> table{MixedValues<T>(random, kTableRows* kWidth), Shape{kTableRows, kWidth}};
  Array<State> state1{random.Values<State>(kTableRows * kWidth), Shape{kTableRows, kWidth}};
  Array<State> state2{random.Values<State>(kTableRows * kWidth), Shape{kTableRows, kWidth}};
  Array<int32_t> indices{random.ZipfIds<int32_t>(kIds, kTableRows)};
  Array<int32_t> segments{random.UniformIds<int32_t>(kIds, kSegments)};
  Array<int32_t> ascending{std::vector<int32_t>(kIds)};
  Array<int32_t> table_rows{{kTableRows}, Shape{}};
  Array<float> weights{MixedValues<float>(random, kIds)};
};

constexpr std::pair<Accumulation, const char*> kModes[] = {
    {Accumulation::kSequential, ""}, {Accumulation::kFast, ", fast"}, {Accumulation::kReproducible, ", reproducible"}};

template <class T>
void AddSegmentCases(std::vector<Case>& cases) {
  const auto batch = std::make_shared<const Batch<T>>();
  const auto in_every_mode = [&](const std::string& name, const std::function<Result<Outputs>(const Context&)>& run) {
    for (const auto& [accumulation, mode] : kModes) {
      cases.push_back({name + mode, [run, chosen = accumulation](Context ctx) {
                         ctx.accumulation = chosen;
                         return run(ctx);
                       }});
    }
  };
  const std::string type(DTypeName(kDTypeOf<T>));
  const auto plan = [batch](const Array<int32_t>& segments, const Context& ctx) {
    return SegmentPlan::Make(batch->indices, segments, {Batch<T>::kTableRows, Batch<T>::kSegments}, ctx);
  };
  for (const auto& named_combiner : {std::pair(SegmentCombiner::kSum, "Sum"), std::pair(SegmentCombiner::kMean, "Mean"),
                                     std::pair(SegmentCombiner::kSqrtN, "SqrtN")}) {
    const SegmentCombiner combiner = named_combiner.first;  // clang 14 captures no structured bindings
    const std::string named = std::string(named_combiner.second) + " " + type;
    in_every_mode("SparseSegmentGradV2 " + named, [=](const Context& ctx) -> Result<Outputs> {
      auto result = SparseSegmentGradV2(combiner, batch->grad, batch->indices, batch->segments, batch->table_rows, ctx);
      if (!result.ok()) return result.status();
      return List(std::move(result->output), std::move(result->sorted_unique_indices));
    });
    cases.push_back({"SparseSegmentGrad " + named, [=](const Context& ctx) {
                       return One(SparseSegmentGrad(combiner, batch->grad, batch->indices, batch->segments,
                                                    batch->table_rows, ctx));
                     }});
    cases.push_back({"SparseSegmentGradV2Padded " + named, [=](const Context& ctx) -> Result<Outputs> {
                       auto result = SparseSegmentGradV2Padded(combiner, batch->grad, batch->indices, batch->segments,
                                                               batch->table_rows, Batch<T>::kTableRows, ctx);
                       if (!result.ok()) return result.status();
                       return List(std::move(result->output));
                     }});
    cases.push_back({"SparseSegmentGradV2 with a plan " + named, [=](const Context& ctx) -> Result<Outputs> {
                       const auto made = plan(batch->segments, ctx);
                       if (!made.ok()) return made.status();
                       auto result = SparseSegmentGradV2(combiner, batch->grad, *made, ctx);
                       if (!result.ok()) return result.status();
                       return List(std::move(result->output));
                     }});
    cases.push_back({"SparseSegment with a plan " + named, [=](const Context& ctx) -> Result<Outputs> {
                       const auto made = plan(batch->ascending, ctx);
                       if (!made.ok()) return made.status();
                       return One(SparseSegment(combiner, batch->table, *made, ctx));
                     }});
    cases.push_back({"SparseSegment " + named, [=](const Context& ctx) {
                       return One(SparseSegment(combiner, batch->table, batch->indices, batch->ascending, ctx));
                     }});
    in_every_mode("SparseSegmentWithNumSegments, long segments " + named, [=](const Context& ctx) {
      Array<int32_t> few = batch->ascending;
      for (int32_t& segment : few.values) segment /= 100;
      return One(SparseSegmentWithNumSegments(combiner, batch->table, batch->indices, few,
                                              TensorView::Scalar(int32_t{400}), ctx));
    });
    cases.push_back({"SparseSegment with weights " + named, [=](const Context& ctx) -> Result<Outputs> {
                       const SegmentPooling pooling{combiner, {batch->weights}};
                       auto pooled = SparseSegment(pooling, batch->table, batch->indices, batch->ascending, ctx);
                       if (!pooled.ok()) return pooled.status();
                       auto dense = SparseSegmentGrad(pooling, batch->grad, batch->indices, batch->segments,
                                                      batch->table_rows, ctx);
                       if (!dense.ok()) return dense.status();
                       auto slopes = SparseSegmentWeightsGrad(pooling, batch->grad, batch->table, batch->indices,
                                                              batch->ascending, ctx);
                       if (!slopes.ok()) return slopes.status();
                       return List(*std::move(pooled), *std::move(dense), *std::move(slopes));
                     }});
  }
  cases.push_back(
      {"Coalesce " + type, [=](const Context& ctx) -> Result<Outputs> {
         const Array<int32_t> ids{{batch->indices.values.begin(), batch->indices.values.begin() + Batch<T>::kSegments}};
         auto result = Coalesce({batch->grad, ids, Batch<T>::kTableRows}, ctx);
         if (!result.ok()) return result.status();
         Result<Tensor> dense = ToDense({batch->grad, ids, Batch<T>::kTableRows}, ctx);
         if (!dense.ok()) return dense.status();
         return List(std::move(result->values), *std::move(dense));
       }});
  using State = typename Batch<T>::State;
  for (const auto& named_rule :
       {std::pair(0, "Sgd"), std::pair(1, "Adagrad"), std::pair(2, "Adam"), std::pair(3, "Adam with a NaN as beta1")}) {
    const int rule = named_rule.first;
    cases.push_back({std::string("SparseSegmentGradApply ") + named_rule.second + " " + type,
                     [=](const Context& ctx) -> Result<Outputs> {
                       Array<T> table = batch->table;
                       Array<State> state1 = batch->state1, state2 = batch->state2;
                       const auto view1 = MutableTensorView::Of(state1.values.data(), state1.shape);
                       const auto view2 = MutableTensorView::Of(state2.values.data(), state2.shape);
                       const RowUpdate updates[] = {
                           Sgd{0.1},
                           Adagrad{.learning_rate = 0.1, .accumulator = view1},
                           Adam{.learning_rate = 0.1, .step = 7, .m = view1, .v = view2},
                           Adam{.learning_rate = 0.1, .beta1 = std::nan(""), .m = view1, .v = view2},
                       };
                       const Status status = SparseSegmentGradApply(
                           SegmentCombiner::kMean, batch->grad, batch->indices, batch->segments, updates[rule],
                           MutableTensorView::Of(table.values.data(), table.shape), ctx);
                       if (!status.ok()) return status;
                       return List(testing::TensorOf(table.values, table.shape),
                                   testing::TensorOf(state1.values, state1.shape),
                                   testing::TensorOf(state2.values, state2.shape));
                     }});
  }
}

template <class T>
void AddFillCases(std::vector<Case>& cases) {
  constexpr int64_t kPlaces = 140000;
  Generator random(7);
  const auto grad = std::make_shared<const Array<T>>(MixedValues<T>(random, kPlaces));
  const auto tame = std::make_shared<const Array<T>>(random.Values<T>(kPlaces));
  std::vector<int64_t> ascending;
  for (int64_t place = 0; place < kPlaces; ++place) {
    if (random.Below(4) == 0) ascending.push_back(place);
  }
  const auto sorted = std::make_shared<const Array<int64_t>>(ascending);
  const auto any = std::make_shared<const Array<int64_t>>(random.UniformIds<int64_t>(kPlaces / 3, kPlaces));
  const std::string type(DTypeName(kDTypeOf<T>));
  for (const auto& [map, name] : {std::pair(sorted, "ascending"), std::pair(any, "any order")}) {
    for (const auto& values : {grad, tame}) {
      for (const auto& [accumulation, mode] : kModes) {
        cases.push_back({"SparseFillEmptyRowsGrad " + type + ", " + name + mode,
                         [map = map, values, chosen = accumulation](Context ctx) -> Result<Outputs> {
                           ctx.accumulation = chosen;
                           auto result = SparseFillEmptyRowsGrad(*map, *values, ctx);
                           if (!result.ok()) return result.status();
                           return List(std::move(result->d_values), std::move(result->d_default_value));
                         }});
      }
    }
  }
}

// Operators that only move values, signalling NaNs among them.
template <class T>
void AddMovingCases(std::vector<Case>& cases) {
  Generator random(11);
  const std::string type(DTypeName(kDTypeOf<T>));
  constexpr int64_t kRows = 35000;
  const auto values = std::make_shared<const Array<T>>(random.HostileValues<T>(kRows));
  std::vector<int64_t> even;
  for (int64_t i = 0; i < kRows; ++i) even.push_back(2 * i);
  const auto indices = std::make_shared<const Array<int64_t>>(even, Shape{kRows, 1});
  const auto default_value = std::make_shared<const T>(random.Value<T>());
  cases.push_back({"SparseFillEmptyRows " + type, [=](const Context& ctx) -> Result<Outputs> {
                     auto result = SparseFillEmptyRows(*indices, *values, Array<int64_t>{{2 * kRows}},
                                                       TensorView::Scalar(*default_value), ctx);
                     if (!result.ok()) return result.status();
                     return List(std::move(result->output_values), std::move(result->output_indices));
                   }});
  cases.push_back(
      {"SparseSlice " + type, [=](const Context& ctx) -> Result<Outputs> {
         auto result = SparseSlice(*indices, *values, Array<int64_t>{{2 * kRows}}, Array<int64_t>{{100}},
                                   Array<int64_t>{{kRows}}, ctx);
         if (!result.ok()) return result.status();
         const Array<T> grad{{values->values.begin(), values->values.begin() + result->output_values.shape()[0]}};
         Result<Tensor> back =
             SparseSliceGrad(grad, *indices, Array<int64_t>{{100}}, result->output_indices.view(), ctx);
         if (!back.ok()) return back.status();
         return List(std::move(result->output_values), *std::move(back));
       }});
  cases.push_back({"RaggedTensorToVariant and back " + type, [=](const Context& ctx) -> Result<Outputs> {
                     const Array<int64_t> splits{{0, 7, kRows / 2, kRows}};
                     const TensorView levels[] = {splits};
                     const auto encoded = RaggedTensorToVariant(levels, *values, true, ctx);
                     if (!encoded.ok()) return encoded.status();
                     auto decoded = RaggedTensorFromVariant(encoded->view(), 0, 1, kDTypeOf<T>, DType::kInt64, ctx);
                     if (!decoded.ok()) return decoded.status();
                     Result<Tensor> grad = RaggedTensorToVariantGradient(
                         encoded->view(), splits, Array<int32_t>{{static_cast<int32_t>(kRows)}}, kDTypeOf<T>, ctx);
                     if (!grad.ok()) return grad.status();
                     return List(std::move(decoded->values()), *std::move(grad));
                   }});
  // Fails with a message that shows the value.
  cases.push_back(
      {"RaggedTensorFromVariant of a scalar " + type, [=](const Context& ctx) -> Result<Outputs> {
         const std::optional<RaggedView> elements[] = {RaggedView{{}, TensorView::Scalar(*default_value)}};
         const auto result = RaggedTensorFromVariant({Shape{1}, elements}, 0, 1, kDTypeOf<T>, DType::kInt64, ctx);
         EXPECT_FALSE(result.ok());
         return result.status();
       }});
  cases.push_back(
      {"Batch and Unbatch " + type, [=](const Context& ctx) -> Result<Outputs> {
         BatchingRuntime runtime(ctx);
         auto batched = runtime.Batch({.resource = {"", "b"}, .in_tensors = {{*values}}, .max_batch_size = kRows});
         if (!batched.ok()) return batched.status();
         const TensorView index = batched->batch_index.view(), id = batched->id.view();
         Result<Tensor> rows = runtime.Unbatch({.resource = {"", "u"},
                                                .batched_tensor = batched->batched_tensors[0].view(),
                                                .batch_index = index,
                                                .id = id});
         if (!rows.ok()) return rows.status();
         Result<Tensor> grad = runtime.UnbatchGrad(
             {.resource = {"", "g"}, .original_input = *values, .batch_index = index, .grad = {*values}, .id = id});
         if (!grad.ok()) return grad.status();
         return List(*std::move(rows), *std::move(grad));
       }});
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  const auto add = [&]<class... Ts>(TypeList<Ts...>) {
    (AddSegmentCases<Ts>(cases), ...);
    const size_t segment_cases = cases.size();
    (AddFillCases<Ts>(cases), ...);
    (AddMovingCases<Ts>(cases), ...);
    for (size_t i = segment_cases; i < cases.size(); ++i) cases[i].for_every_isa = false;
  };
#if defined(RAGGRAD_SANITIZED)  // all four would take minutes with ThreadSanitizer
  add(TypeList<Half, float>{});
#else
  add(FloatTypes{});
#endif
  return cases;
}

void ExpectSame(const Outputs& got, const Outputs& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(testing::Difference(got[i].view(), want[i].view()), "") << "output " << i;
  }
}

TEST(FloatEnvironmentOfOperators, ResultsAndTheCallersEnvironmentStayTheSame) {
  const std::vector<Case> cases = AllCases();
  std::vector<Outputs> expected;
  for (const Case& c : cases) {
    Context ctx;
    ctx.executor = &SerialExecutor();
    expected.push_back(ResultOf(c, ctx));
  }
  testing::ForEachSetting([&](const Context& ctx) {
    for (const OddEnvironment& odd : testing::kOddEnvironments) {
      for (size_t i = 0; i < cases.size(); ++i) {
        if (!cases[i].for_every_isa && ctx.isa != AvailableIsas().front()) continue;
        SCOPED_TRACE(cases[i].name + ", " + odd.name());
        Outputs outputs;
        cpu::FloatState before, after;
        {
          const ScopedEnvironment environment(odd);
          before = cpu::FloatState::Read();
          outputs = ResultOf(cases[i], ctx);
          after = cpu::FloatState::Read();
        }
        ExpectSame(outputs, expected[i]);
        ASSERT_EQ(before, after) << "modes, masks and flags";
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

// Threads inherit the environment of the one that starts them.
TEST(FloatEnvironmentOfOperators, AnOddOneOfTheWorkersDoesNotMatter) {
  const Batch<float> batch;
  const auto run = [&](Executor& executor) {
    Context ctx;
    ctx.executor = &executor;
    return SparseSegmentMeanGradV2(batch.grad, batch.indices, batch.segments, batch.table_rows, ctx);
  };
  const auto expected = run(SerialExecutor());
  ASSERT_TRUE(expected.ok());
  for (const OddEnvironment& odd : testing::kOddEnvironments) {
    std::unique_ptr<Executor> pool;
    {
      const ScopedEnvironment environment(odd);
      pool = MakeThreadPool(7);
    }
    const auto result = run(*pool);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(testing::Difference(result->output.view(), expected->output.view()), "") << odd.name();
  }
}

// Each level narrows with different instructions, which must give the same bits, NaNs included.
TEST(FloatEnvironmentOfOperators, HalfIsNarrowedAlikeByEveryInstructionSet) {
  std::vector<float> steps;
  for (uint32_t half = 0; half < 0x8000; half += 3) {  // halves, the middles between them, and their neighbours
    const float wide = cpu::BaselineConvert::Widen(Half{static_cast<uint16_t>(half)});
    for (uint32_t more : {0U, 1U, 0xfffU, 0x1000U, 0x1001U}) {
      const uint32_t bits = (half % 2) << 31 | (std::bit_cast<uint32_t>(wide) + more);
      steps.push_back(std::bit_cast<float>(bits));
    }
  }
  const auto width = static_cast<int64_t>(steps.size());
  const Array<float> grad{steps, Shape{1, width}};
  testing::ForEachSetting([&](const Context& ctx) {
    std::vector<Half> table(steps.size(), Half{0});
    const Status status =
        ApplyRows({grad, Array<int32_t>{{0}}, 1}, Sgd{-1.0}, MutableTensorView::Of(table.data(), Shape{1, width}), ctx);
    ASSERT_TRUE(status.ok()) << status.message();
    for (size_t i = 0; i < steps.size(); ++i) {
      const uint16_t want = cpu::BaselineConvert::NarrowToHalf(0.0F + steps[i]).bits;
      const uint16_t zero = want == 0x8000 ? 0 : want;  // 0 - -1 * -0 is 0
      ASSERT_EQ(table[i].bits & 0x7fff, zero & 0x7fff) << "the float " << std::hex << std::bit_cast<uint32_t>(steps[i]);
    }
  });
}

}  // namespace
}  // namespace raggrad
