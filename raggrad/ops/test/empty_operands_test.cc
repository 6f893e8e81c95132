// Operands without elements whose other dimensions are so large that their products, in elements or in bytes, overflow.
// All of them are valid. Sanitizers report an overflow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "raggrad/raggrad.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/combiners.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::testing::Array;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::kCombiners;
using ::raggrad::testing::StatusIs;
using ::testing::_;
using ::testing::HasSubstr;

constexpr int64_t kHuge[] = {INT64_MAX, INT64_MAX - 1, int64_t{1} << 62, int64_t{1} << 61, (int64_t{1} << 60) + 1};

template <class T>
TensorView Empty(Shape shape) {
  return TensorView::Of<T>(nullptr, std::move(shape));
}

const Array<int32_t> kNoIds{{}};

// Calls f<T>(combiner, huge, ctx) for two types, every combiner, huge dimension and setting.
template <class F>
void ForEachHuge(const F& f) {
  ForEachSetting([&](const Context& ctx) {
    for (const int64_t huge : kHuge) {
      for (const SegmentCombiner combiner : kCombiners) {
        f.template operator()<Half>(combiner, huge, ctx);
        f.template operator()<double>(combiner, huge, ctx);
      }
    }
  });
}

TEST(EmptyOperands, SegmentGradientsOfNoRows) {
  ForEachHuge([]<class T>(SegmentCombiner combiner, int64_t huge, const Context& ctx) {
    for (const Shape& shape : {Shape{0, huge}, Shape{0, huge, huge}, Shape{3, 0, huge}}) {
      const TensorView grad = Empty<T>(shape);
      const auto dense = SparseSegmentGrad(combiner, grad, kNoIds, kNoIds, TensorView::Scalar(0), ctx);
      ASSERT_THAT(dense, IsOk());
      EXPECT_EQ(dense->shape(), Shape::WithDim0(0, shape.tail()));
      const auto rows = SparseSegmentGradV2(combiner, grad, kNoIds, kNoIds, TensorView::Scalar(0), ctx);
      ASSERT_THAT(rows, IsOk());
      EXPECT_EQ(rows->output.shape(), Shape::WithDim0(0, shape.tail()));
      ASSERT_THAT(SparseSegmentGradV2Padded(combiner, grad, kNoIds, kNoIds, TensorView::Scalar(0), 0, ctx), IsOk());
    }
  });
}

// The result would have one row, which does not fit in any memory.
TEST(EmptyOperands, SegmentGradientsOfOneRow) {
  ForEachHuge([]<class T>(SegmentCombiner combiner, int64_t huge, const Context& ctx) {
    const TensorView grad = Empty<T>(Shape{0, huge});
    EXPECT_THAT(SparseSegmentGrad(combiner, grad, kNoIds, kNoIds, TensorView::Scalar(1), ctx),
                StatusIs(Code::kResourceExhausted, _));
    EXPECT_THAT(SparseSegmentGradV2(combiner, grad, kNoIds, kNoIds, TensorView::Scalar(1), ctx), IsOk());
    const Array<int32_t> id{{0}};
    EXPECT_THAT(SparseSegmentGradV2(combiner, grad, id, id, TensorView::Scalar(1), ctx),
                StatusIs(Code::kInvalidArgument, _));
  });
}

TEST(EmptyOperands, SegmentsOfRowsWithoutColumns) {
  ForEachHuge([]<class T>(SegmentCombiner combiner, int64_t huge, const Context& ctx) {
    const TensorView many = Empty<T>(Shape{huge, 0});
    const Array<int32_t> ids{{0, 2, 2}};
    EXPECT_THAT(SparseSegmentGrad(combiner, many, ids, ids, TensorView::Scalar(INT32_MAX), ctx), IsOk());
    EXPECT_THAT(SparseSegmentGradV2(combiner, many, ids, ids, TensorView::Scalar(INT32_MAX), ctx), IsOk());
    EXPECT_THAT(SparseSegment(combiner, many, ids, ids, ctx), IsOk());
    EXPECT_THAT(SparseSegment(combiner, Empty<T>(Shape{0, huge}), kNoIds, kNoIds, ctx), IsOk());
    EXPECT_THAT(
        SparseSegmentWithNumSegments(combiner, Empty<T>(Shape{0, huge}), kNoIds, kNoIds, TensorView::Scalar(1), ctx),
        StatusIs(Code::kResourceExhausted, _));
  });
}

TEST(EmptyOperands, PlansAndIndexedSlices) {
  ForEachHuge([]<class T>(SegmentCombiner combiner, int64_t huge, const Context& ctx) {
    const auto plan = SegmentPlan::Make(kNoIds, kNoIds, {0, 0}, ctx);
    ASSERT_THAT(plan, IsOk());
    const TensorView values = Empty<T>(Shape{0, huge, huge});
    EXPECT_THAT(SparseSegmentGrad(combiner, values, *plan, ctx), IsOk());
    EXPECT_THAT(SparseSegmentGradV2(combiner, values, *plan, ctx), IsOk());
    EXPECT_THAT(SparseSegment(combiner, values, *plan, ctx), IsOk());
    EXPECT_THAT(ToDense({values, kNoIds, 0}, ctx), IsOk());
    EXPECT_THAT(Coalesce({values, kNoIds, 0}, ctx), IsOk());
    const MutableTensorView table = MutableTensorView::Of<T>(nullptr, values.shape);
    EXPECT_THAT(ApplyRows({values, kNoIds, 0}, Sgd{0.1}, table, ctx), IsOk());
    EXPECT_THAT(SparseSegmentGradApply(combiner, values, kNoIds, kNoIds, Sgd{0.1}, table, ctx), IsOk());
  });
}

TEST(EmptyOperands, VariantsOfHugeShapes) {
  ForEachSetting([](const Context& ctx) {
    for (const int64_t huge : kHuge) {
      for (const DType splits : {DType::kInt32, DType::kInt64}) {
        const auto decode = [&](Shape shape) {
          const int64_t rank = shape.rank();
          return RaggedTensorFromVariant({std::move(shape), {}}, 0, rank, DType::kFloat64, splits, ctx);
        };
        EXPECT_THAT(decode(Shape{huge, 0}), StatusIs(Code::kResourceExhausted, _));
        EXPECT_THAT(decode(Shape{0, huge}), IsOk());
        EXPECT_THAT(decode(Shape{0, huge, huge}), StatusIs(Code::kInvalidArgument, HasSubstr("do not fit")));
      }
      const auto encode = [&](Shape shape, bool batched) {
        return RaggedTensorToVariant({}, Empty<double>(std::move(shape)), batched, ctx);
      };
      EXPECT_THAT(encode(Shape{huge, 0}, true), StatusIs(Code::kResourceExhausted, _));
      EXPECT_THAT(encode(Shape{huge, 0}, false), IsOk());
      EXPECT_THAT(encode(Shape{0, huge, huge}, true), IsOk());
      const Array<int64_t> no_rows{{0}};
      const TensorView levels[] = {no_rows};
      EXPECT_THAT(RaggedTensorToVariant(levels, Empty<double>(Shape{0, huge, huge}), true, ctx), IsOk());
      const std::optional<RaggedView> elements[] = {RaggedView{{}, Empty<double>(Shape{0, huge, huge})},
                                                    RaggedView{{}, Empty<double>(Shape{huge, 0})}};
      EXPECT_THAT(RaggedTensorToVariantGradient({Shape{2}, elements}, Array<int64_t>{{0, 0, 0}}, Array<int32_t>{{0}},
                                                DType::kFloat64, ctx),
                  IsOk());
      EXPECT_THAT(
          RaggedTensorToVariantGradient({Shape{huge, 0}, {}}, Array<int64_t>{{0}},
                                        Array<int32_t>{{INT32_MAX, INT32_MAX, 0, INT32_MAX}}, DType::kFloat64, ctx),
          IsOk());
      const std::optional<RaggedView> joined[] = {elements[0], elements[0]};
      EXPECT_THAT(RaggedTensorFromVariant({Shape{2}, joined}, 0, 1, DType::kFloat64, DType::kInt64, ctx), IsOk());
    }
  });
}

TEST(EmptyOperands, SlicesAndFilledRows) {
  ForEachSetting([](const Context& ctx) {
    for (const int64_t huge : kHuge) {
      const TensorView none = Empty<double>(Shape{0});
      // There are `huge` rows without columns, and one result for each.
      EXPECT_THAT(SparseSliceGrad(none, Empty<int64_t>(Shape{huge, 0}), Empty<int64_t>(Shape{0}),
                                  Empty<int64_t>(Shape{0, 0}), ctx),
                  StatusIs(Code::kResourceExhausted, _));
      EXPECT_THAT(SparseSliceGrad(none, Empty<int64_t>(Shape{0, huge}), Array<int64_t>{{1}},
                                  Empty<int64_t>(Shape{0, huge}), ctx),
                  StatusIs(Code::kInvalidArgument, _));
      EXPECT_THAT(SparseSlice(Empty<int64_t>(Shape{0, huge}), none, Array<int64_t>{{1}}, Array<int64_t>{{0}},
                              Array<int64_t>{{1}}, ctx),
                  StatusIs(Code::kInvalidArgument, _));
      EXPECT_THAT(
          SparseFillEmptyRows(Empty<int64_t>(Shape{0, huge}), none, Array<int64_t>{{1}}, TensorView::Scalar(1.0), ctx),
          StatusIs(Code::kInvalidArgument, _));
      EXPECT_THAT(
          SparseFillEmptyRows(Empty<int64_t>(Shape{0, 1}), none, Array<int64_t>{{huge}}, TensorView::Scalar(1.0), ctx),
          StatusIs(Code::kResourceExhausted, _));
    }
  });
}

TEST(EmptyOperands, Batches) {
  for (const int64_t huge : kHuge) {
    for (const Shape& shape : {Shape{0, huge, huge}, Shape{huge, 0}, Shape{2, 0, huge}}) {
      BatchingRuntime runtime;
      const TensorView none = Empty<double>(shape);
      const auto batch = runtime.Batch({.resource = {"", "b"}, .in_tensors = {{none}}, .max_batch_size = -1});
      EXPECT_THAT(batch, IsOk());
      const Array<int64_t> index{{7, 0, shape[0]}, Shape{1, 3}};
      if (shape[0] > 0) {  // TensorFlow's Unbatch takes no owner without rows
        const auto rows = runtime.Unbatch({.resource = {"", "u"},
                                           .batched_tensor = none,
                                           .batch_index = index,
                                           .id = TensorView::Scalar(int64_t{7})});
        ASSERT_THAT(rows, IsOk());
        EXPECT_EQ(rows->shape(), shape);
      }
      const double one = 1;
      const auto grad = runtime.UnbatchGrad({.resource = {"", "g"},
                                             .original_input = TensorView::Of(&one, Shape{1}),
                                             .batch_index = index,
                                             .grad = {none},
                                             .id = TensorView::Scalar(int64_t{7})});
      ASSERT_THAT(grad, IsOk());
      EXPECT_EQ(grad->shape(), shape);
    }
  }
}

TEST(EmptyOperands, MoreBytesThanMemoryCanHave) {
  const double one = 1;
  const TensorView grad = TensorView::Of(&one, Shape{1, int64_t{1} << 61});
  const Array<int32_t> id{{0}};
  EXPECT_THAT(
      SparseSegmentSumGradV2(grad, id, id, TensorView::Scalar(1)),
      StatusIs(Code::kInvalidArgument,
               HasSubstr("[grad: expected less than 2^63 bytes, got 2305843009213693952 elements of float64]")));
}

}  // namespace
}  // namespace raggrad
