// Status, Result, Shape, dtypes, tensors, contexts and instruction sets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <numeric>
#include <set>

#include "raggrad/core/error_text.h"
#include "raggrad/core/operands.h"
#include "raggrad/core/scratch.h"
#include "raggrad/raggrad.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::testing::CountingAllocator;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::StatusIs;
using ::testing::HasSubstr;

TEST(StatusTest, CarriesCodeAndMessage) {
  const Status ok;
  EXPECT_TRUE(ok.ok());
  EXPECT_EQ(ok.message(), "");
  const Status error(Code::kInvalidArgument, "wrong");
  const Status copy = error;  // NOLINT(performance-unnecessary-copy-initialization): copies are what is tested
  EXPECT_FALSE(copy.ok());
  EXPECT_EQ(copy.code(), Code::kInvalidArgument);
  EXPECT_EQ(copy.message(), "wrong");
  EXPECT_EQ(CodeName(Code::kResourceExhausted), "RESOURCE_EXHAUSTED");
}

TEST(ResultTest, IsAValueOrAStatus) {
  const Result<int> value = 3;
  EXPECT_TRUE(value.ok());
  EXPECT_TRUE(value.status().ok());
  EXPECT_EQ(*value, 3);
  const Result<int> error = Status(Code::kNotFound, "none");
  EXPECT_FALSE(error.ok());
  EXPECT_EQ(error.status().code(), Code::kNotFound);
  EXPECT_EQ(Result<int>(Status()).status().code(), Code::kInternal) << "an OK status is no value";
}

TEST(ShapeTest, HoldsShortAndLongShapes) {
  EXPECT_EQ(Shape{}.rank(), 0);
  EXPECT_EQ(Shape{}.NumElements(), 1);
  EXPECT_EQ((Shape{2, 3, 4}.NumElements()), 24);
  std::vector<int64_t> dims(254);
  std::iota(dims.begin(), dims.end(), 0);
  const Shape longest{std::span<const int64_t>(dims)};
  const Shape copy = longest;  // NOLINT(performance-unnecessary-copy-initialization): copies are what is tested
  ASSERT_TRUE(copy.valid());
  EXPECT_EQ(copy.rank(), 254);
  EXPECT_EQ(copy[253], 253);
  EXPECT_TRUE(copy == longest);
  EXPECT_EQ(copy.NumElements(), 0);
  dims.push_back(1);
  const Shape too_long{std::span<const int64_t>(dims)};
  EXPECT_FALSE(too_long.valid()) << "255 dimensions are too many";
  EXPECT_EQ(too_long.NumElements(), std::nullopt);
  const Shape grown = Shape::WithDim0(9, Shape{1, 2, 3, 4, 5, 6, 7, 8}.dims());
  EXPECT_TRUE(grown == (Shape{9, 1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(ShapeTest, CopiesAreIndependent) {  // whether the dimensions lie inside or are shared
  for (const Shape& original : {Shape{2, 3}, Shape{2, 3, 4, 5}, Shape{2, 3, 4, 5, 6}}) {
    auto owner = std::make_unique<Shape>(original);
    Shape copy = *owner, assigned{7};
    assigned = *owner;
    const Shape moved = std::move(*owner);
    EXPECT_EQ(owner->rank(), 0);  // NOLINT(bugprone-use-after-move): a scalar again
    EXPECT_EQ(owner->NumElements(), 1);
    owner.reset();
    for (const Shape& shape : {copy, assigned, moved}) {
      EXPECT_TRUE(shape == original);
      EXPECT_EQ(shape.NumElements(), original.NumElements());
    }
    copy = Shape{9};
    EXPECT_TRUE(moved == original);
    EXPECT_TRUE((copy == Shape{9}));
  }
}

TEST(ShapeTest, CountsElementsWithoutOverflow) {
  const int64_t big = int64_t{1} << 40;
  EXPECT_EQ((Shape{big, big}.NumElements()), std::nullopt);
  EXPECT_EQ((Shape{0, big, big}.NumElements()), 0);
  EXPECT_EQ((Shape{big, big, 0}.NumElements()), std::nullopt) << "multiplied from the left, as TensorFlow does";
  EXPECT_EQ((Shape{3, -1}.NumElements()), std::nullopt);
}

template <class... E>
void CheckElements(TypeList<E...>) {
  std::set<DType> seen;
  const auto check = [&]<class T>(DType dtype) {
    EXPECT_TRUE(seen.insert(dtype).second) << "listed twice: " << DTypeName(dtype);
    EXPECT_EQ(kDTypeOf<T>, dtype);
    EXPECT_EQ(DTypeSize(dtype), sizeof(T)) << DTypeName(dtype);
    EXPECT_EQ(DTypeAlignment(dtype), alignof(T)) << DTypeName(dtype);
    EXPECT_EQ(DTypeFromName(DTypeName(dtype)), dtype);
  };
  (check.template operator()<typename E::type>(E::kDType), ...);
  EXPECT_EQ(seen.size(), 21U);
}

TEST(DTypeTest, OneListAgreesWithNamesAndSizes) {
  CheckElements(Elements{});
  EXPECT_EQ(DTypeFromName("float16"), DType::kHalf);
  EXPECT_EQ(DTypeFromName("float17"), DType::kInvalid);
  EXPECT_EQ(DTypeName(static_cast<DType>(999)), "invalid");
  for (const DType none : {DType::kInvalid, DType::kFloat8E5M2, static_cast<DType>(999), static_cast<DType>(-1)}) {
    EXPECT_EQ(DTypeAlignment(none), 1U);
  }
  EXPECT_EQ(Names(FloatTypes{}), "half, bfloat16, float32, float64");
}

TEST(DTypeTest, VisitFindsTheTypeOrSaysSo) {
  const auto size_of = []<class T>() -> Result<size_t> { return sizeof(T); };
  EXPECT_EQ(*Visit(NumberTypes{}, DType::kComplex128, size_of), 16U);
  EXPECT_THAT(Visit(FloatTypes{}, DType::kInt32, size_of), StatusIs(Code::kInternal, HasSubstr("dtype")));
}

TEST(ErrorTextTest, JoinsItsParts) {
  const Status status = InvalidArgument("Op", "x = ", int64_t{-5}, ", shape ", Shape{2, 3}, ", ", DType::kQInt8);
  EXPECT_EQ(status.message(), "Op: x = -5, shape [2,3], qint8");
  EXPECT_EQ(InvalidArgument("Op", Shape{}).message(), "Op: []");
}

TEST(ErrorTextTest, ErrorsGetTheOperatorsNameOnce) {
  const auto named = [](const Status& status) { return WithOp("Op", [&] { return status; }); };
  EXPECT_THAT(named({}), IsOk());
  EXPECT_EQ(named(Status(Code::kInternal, "lost")).message(), "Op: lost");
  EXPECT_EQ(named(InvalidArgument("Op", "wrong")).message(), "Op: wrong");
  EXPECT_EQ(*WithOp("Op", [] { return Result<int>(7); }), 7);
  EXPECT_THAT(WithOp("Op", [] { return Result<int>(Status(Code::kInternal, "lost")); }),
              StatusIs(Code::kInternal, "Op: lost"));
}

TEST(OperandsTest, DataIsAlignedForItsElements) {
  alignas(16) const char memory[48] = {};
  const auto check = [&](DType dtype, int64_t elements, size_t offset) {
    return CheckOperands("Op", {{"grad", {memory + offset, dtype, Shape{elements}}}});
  };
  EXPECT_THAT(check(DType::kFloat32, 1, 2),
              StatusIs(Code::kInvalidArgument,
                       "Op: an operand is not aligned [grad: expected an address that is a "
                       "multiple of 4, got one that is 2 bytes past a multiple]"));
  EXPECT_THAT(check(DType::kString, 1, 12), StatusIs(Code::kInvalidArgument, HasSubstr("multiple of 8, got one that")));
  EXPECT_THAT(check(DType::kHalf, 1, 1), StatusIs(Code::kInvalidArgument, HasSubstr("multiple of 2")));
  EXPECT_THAT(check(DType::kComplex128, 1, 8), IsOk());
  EXPECT_THAT(check(DType::kBool, 1, 1), IsOk());
  EXPECT_THAT(check(DType::kFloat32, 0, 2), IsOk()) << "nothing is read";
}

TEST(TensorTest, GivesItsMemoryBackOnce) {
  CountingAllocator allocator;
  Context ctx;
  ctx.allocator = &allocator;
  Result<Tensor> made = AllocateOutput(ctx, 0, DType::kFloat32, Shape{5});
  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(made->data()) % Allocator::kAlignment, 0U);
  Tensor moved = *std::move(made);
  EXPECT_EQ(allocator.live_bytes(), 20U);
  Tensor target;
  target = std::move(moved);
  EXPECT_EQ(allocator.live_bytes(), 20U);
  void* released = target.release();
  { const Tensor dropped = std::move(target); }
  EXPECT_EQ(allocator.live_bytes(), 20U);
  allocator.Deallocate(released, 20);
}

TEST(ContextTest, RefusesImpossibleOutputs) {
  const int64_t big = int64_t{1} << 40;
  EXPECT_THAT(AllocateOutput({}, 0, DType::kInt8, Shape{big, big}),
              StatusIs(Code::kInvalidArgument, HasSubstr("overflow")));
  EXPECT_THAT(AllocateOutput({}, 0, DType::kComplex128, Shape{int64_t{1} << 62}),
              StatusIs(Code::kResourceExhausted, HasSubstr("OOM")));
  EXPECT_THAT(AllocateOutput({}, 0, DType::kInt8, Shape{int64_t{1} << 50}),
              StatusIs(Code::kResourceExhausted, HasSubstr("[1125899906842624]")));
  EXPECT_THAT(AllocateOutput({}, 0, DType::kInt8, Shape{3}, std::numeric_limits<size_t>::max()),
              StatusIs(Code::kResourceExhausted, HasSubstr("OOM")));
  EXPECT_THAT(Scratch<double>::Make({}, int64_t{1} << 62), StatusIs(Code::kResourceExhausted, HasSubstr("scratch")));
}

TEST(ContextTest, OutputsAreAskedForWithTheirShape) {
  struct Recorder final : Allocator {
    void* Allocate(size_t bytes) noexcept override { return DefaultAllocator().Allocate(bytes); }
    void Deallocate(void* pointer, size_t bytes) noexcept override { DefaultAllocator().Deallocate(pointer, bytes); }
    void* AllocateOutput(const OutputSpec& spec) noexcept override {
      index = spec.index;
      dtype = spec.dtype;
      shape = spec.shape;
      bytes_asked = spec.bytes;
      return Allocate(spec.bytes);
    }
    int index = -1;
    DType dtype = DType::kInvalid;
    Shape shape;
    size_t bytes_asked = 0;
  } recorder;
  Context ctx;
  ctx.allocator = &recorder;
  ASSERT_THAT(AllocateOutput(ctx, 2, DType::kHalf, Shape{3, 4}, 7), IsOk());
  EXPECT_EQ(recorder.index, 2);
  EXPECT_EQ(recorder.dtype, DType::kHalf);
  EXPECT_TRUE(recorder.shape == (Shape{3, 4}));
  EXPECT_EQ(recorder.bytes_asked, 31U);
}

TEST(IsaTest, TheBestIsChosenAndOthersCanBeForced) {
  ASSERT_FALSE(AvailableIsas().empty());
  for (const Isa isa : AvailableIsas()) {
    const Result<Isa> chosen = ChooseIsa(isa);
    ASSERT_THAT(chosen, IsOk());
    EXPECT_EQ(*chosen, isa);
  }
  EXPECT_THAT(ChooseIsa(static_cast<Isa>(99)), StatusIs(Code::kInvalidArgument, HasSubstr("expected one of")));
}

TEST(VersionTest, IsThreeNumbers) {
  EXPECT_THAT(std::string(Version()), ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

}  // namespace
}  // namespace raggrad
