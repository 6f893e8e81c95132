// The gradient's sum with Accumulation::kFast.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>

#include "raggrad/core/sum_type.h"
#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"
#include "raggrad/ops/sparse_fill_empty_rows/test/test_grad.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/same_bits.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using cpu::BaselineConvert;
using ::raggrad::testing::Array;
using ::raggrad::testing::Difference;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::Gather;
using ::raggrad::testing::Generator;
using ::raggrad::testing::GtestTypes;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::SameBits;
using sparse_fill_empty_rows::Scalar;

constexpr int64_t kSplit = 7 * 16384 + 13;  // values enough for seven threads

template <class T>
auto Widen(T x) {
  if constexpr (kIsShortFloat<T>) {
    return BaselineConvert::Widen(x);
  } else {
    return x;
  }
}

template <class T>
auto PlainTree(std::vector<T> sums) {
  while (sums.size() > 1) {
    std::vector<T> next;
    for (size_t k = 0; k < sums.size(); k += 2) next.push_back(k + 1 < sums.size() ? sums[k] + sums[k + 1] : sums[k]);
    sums = next;
  }
  return sums[0];
}

template <class T>
long double RealPart(T x) {
  return std::real(Widen(x));
}
template <class T>
long double ImagPart(T x) {
  return std::imag(Widen(x));
}

template <class T>
using SumOf = decltype(Widen(T{}));

// d_default_value with kFast. Expects the same bits under every setting.
template <class T>
T FastDefault(const std::vector<int64_t>& map, const std::vector<T>& grad) {
  const Tensor d_values = Gather(Array(grad).view(), map);
  std::vector<T> answers;
  ForEachSetting([&](const Context& base) {
    Context ctx = base;
    ctx.accumulation = Accumulation::kFast;
    const auto got = SparseFillEmptyRowsGrad(Array(map), Array(grad), ctx);
    ASSERT_THAT(got, IsOk());
    EXPECT_EQ(Difference(got->d_values.view(), d_values.view()), "");
    answers.push_back(*got->d_default_value.template As<T>());
    EXPECT_TRUE(SameBits(answers.back(), answers.front()));
  });
  return answers.empty() ? T{} : answers.front();
}

template <class T>
class EveryFloat : public ::testing::Test {};
using FloatAndComplexTypes = JoinLists<FloatTypes, TypeList<std::complex<float>, std::complex<double>>>;
TYPED_TEST_SUITE(EveryFloat, GtestTypes<FloatAndComplexTypes>);

TYPED_TEST(EveryFloat, FastSumIsTheDocumentedTree) {
  Generator random(7);
  for (const int64_t n_full : {1, 4095, 4096, 4097, 3 * 4096, 5 * 4096 + 1, 29 * 4096 + 77}) {
    SCOPED_TRACE(n_full);
    const auto map = random.UniformIds<int64_t>(n_full / 3, n_full);
    const auto grad = random.Values<TypeParam>(n_full);
    std::vector<bool> named(grad.size());
    for (const int64_t place : map) named[static_cast<size_t>(place)] = true;
    std::vector<SumOf<TypeParam>> sums(1);
    for (size_t j = 0, others = 0; j < grad.size(); ++j) {
      if (named[j]) continue;
      if (others++ % 4096 == 0 && others > 1) sums.emplace_back();
      sums.back() += Widen(grad[j]);
    }
    TypeParam want;
    if constexpr (std::is_same_v<TypeParam, Half>) {
      want = BaselineConvert::NarrowToHalf(PlainTree(sums));
    } else if constexpr (std::is_same_v<TypeParam, BFloat16>) {
      want = BaselineConvert::NarrowToBFloat16(PlainTree(sums));
    } else {
      want = PlainTree(sums);
    }
    EXPECT_TRUE(SameBits(FastDefault(map, grad), want));
  }
}

// Each value takes part in at most 4096 additions of its block and ceil(log2(blocks)) of the tree. Each addition errs
// by at most half an epsilon of its result. So |error| <= (4096 + log2(blocks) + 2) * epsilon * sum of |x|, with room
// for the products of errors. Rounding to 16 bits adds half an epsilon of that type.
TYPED_TEST(EveryFloat, FastSumKeepsItsErrorBound) {
  using Part = decltype(std::real(SumOf<TypeParam>{}));
  Generator random(8);
  const int64_t n_full = 29 * 4096 + 77;
  const auto grad = random.Values<TypeParam>(n_full);
  const TypeParam got = FastDefault({}, grad);
  const long double epsilon16 = std::is_same_v<TypeParam, Half>       ? 0x1p-10L
                                : std::is_same_v<TypeParam, BFloat16> ? 0x1p-7L
                                                                      : 0.0L;
  const auto check = [&](const auto& part) {
    long double sum = 0;
    long double magnitude = 0;
    for (const TypeParam& x : grad) {
      sum += part(x);
      magnitude += std::fabs(part(x));
    }
    const long double additions = 4096 + std::log2(30.0L) + 2;
    const long double bound = additions * static_cast<long double>(std::numeric_limits<Part>::epsilon()) * magnitude;
    EXPECT_LE(std::fabs(part(got) - sum), bound + epsilon16 * std::fabs(sum));
  };
  check(RealPart<TypeParam>);
  check(ImagPart<TypeParam>);
}

TYPED_TEST(EveryFloat, FastSumOfNothing) { EXPECT_TRUE(SameBits(FastDefault<TypeParam>({}, {}), TypeParam{})); }

TEST(FillEmptyRowsGradFast, SixteenBitTypesRoundOnce) {
  Context ctx;
  ctx.accumulation = Accumulation::kFast;
  const auto got = SparseFillEmptyRowsGrad(Array<int64_t>({}), Array<Half>({{0x6800}, {0x3c00}, {0x3c00}}), ctx);
  ASSERT_THAT(got, IsOk());
  EXPECT_TRUE(HoldsBits(got->d_default_value.view(), Scalar(Half{0x6801})));  // 2050
}

TEST(FillEmptyRowsGradFast, FlushesSubnormalsOnEveryThread) {
  const float tiny = std::numeric_limits<float>::min();
  std::vector<float> grad(kSplit, 0.0F);
  for (size_t j = 0; j < grad.size(); j += 1000) grad[j] = tiny / 2;  // operands of a block's sum
  grad[20480] = tiny * 1.5F;                                          // the tree adds it to -tiny: subnormal
  grad[16384] = -tiny;                                                // in the block before
  ForEachSetting([&](const Context& base) {
    Context ctx = base;
    ctx.accumulation = Accumulation::kFast;
    const auto got = SparseFillEmptyRowsGrad(Array<int64_t>({}), Array(grad), ctx);
    ASSERT_THAT(got, IsOk());
    EXPECT_TRUE(HoldsBits(got->d_default_value.view(), Scalar(0.0F)));
  });
}

}  // namespace
}  // namespace raggrad
