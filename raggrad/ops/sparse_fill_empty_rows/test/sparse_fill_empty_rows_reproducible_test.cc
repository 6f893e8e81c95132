// The gradient's sum with Accumulation::kReproducible: the bits of the definition, for every order of the values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <numeric>
#include <random>

#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"
#include "raggrad/ops/sparse_fill_empty_rows/test/test_grad.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/reproducible_sum.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"
#include "raggrad/testing/wide_values.h"

namespace raggrad {
namespace {

using ::raggrad::testing::Array;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::GtestTypes;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::kWideRanges;
using ::raggrad::testing::Reproducible;
using ::raggrad::testing::WideValues;
using sparse_fill_empty_rows::Scalar;

template <class V>
V Narrow(SumType<V> x) {
  if constexpr (std::is_same_v<V, Half>) {
    return cpu::BaselineConvert::NarrowToHalf(x);
  } else if constexpr (std::is_same_v<V, BFloat16>) {
    return cpu::BaselineConvert::NarrowToBFloat16(x);
  } else {
    return x;
  }
}

template <class V>
V Expected(const std::vector<V>& values) {
  using A = SumType<V>;
  std::vector<std::vector<A>> terms;
  std::vector<A> column;
  for (const V& value : values) {
    if constexpr (kIsShortFloat<V>) {
      column.push_back(testing::FlushSubnormal(cpu::BaselineConvert::Widen(value)));
    } else {
      column.push_back(testing::FlushSubnormal(value));
    }
    terms.push_back({column.back()});
  }
  return Narrow<V>(testing::ReproducibleSum(column, testing::ExponentOf(terms), 1.0));
}

template <class T>
void ExpectSum(const std::vector<T>& values, const T& want) {
  const std::vector<int64_t> nothing;
  ForEachSetting([&](const Context& ctx) {
    const auto got = SparseFillEmptyRowsGrad(Array(nothing), Array(values), Reproducible(ctx));
    ASSERT_THAT(got, IsOk());
    EXPECT_TRUE(HoldsBits(got->d_default_value.view(), Scalar(want)));
  });
}

template <class V>
class SparseFillEmptyRowsReproducibleTest : public ::testing::Test {};
TYPED_TEST_SUITE(SparseFillEmptyRowsReproducibleTest, GtestTypes<FloatTypes>);

TYPED_TEST(SparseFillEmptyRowsReproducibleTest, HasTheBitsOfTheDefinition) {
  std::mt19937 random(1);
  for (const int count : {0, 1, 2, 7, 8, 9, 63, 1000, 200'003}) {
    for (int range = 0; range < kWideRanges; ++range) {
      auto values = WideValues<TypeParam>(static_cast<size_t>(count), range, random);
      const TypeParam want = Expected(values);
      ExpectSum(values, want);
      std::shuffle(values.begin(), values.end(), random);
      ExpectSum(values, want);
    }
  }
}

TYPED_TEST(SparseFillEmptyRowsReproducibleTest, SumsThePlacesThatNoEntryNames) {
  std::mt19937 random(2);
  const auto values = WideValues<TypeParam>(150'000, 0, random);
  std::vector<int64_t> ascending;
  std::vector<TypeParam> others;
  for (size_t i = 0; i < values.size(); ++i) {
    if (random() % 4 == 0) {
      others.push_back(values[i]);
    } else {
      ascending.push_back(static_cast<int64_t>(i));
    }
  }
  const TypeParam want = Expected(others);
  std::vector<int64_t> shuffled = ascending;
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  for (const std::vector<int64_t>& map : {ascending, shuffled}) {
    ForEachSetting([&](const Context& ctx) {
      const auto got = RaggedFillEmptyRowsGrad(Array(map), Array(values), Reproducible(ctx));
      ASSERT_THAT(got, IsOk());
      EXPECT_TRUE(HoldsBits(got->d_default_value.view(), Scalar(want)));
      ExpectEveryAllocationFailureIsReported(Reproducible(ctx), [&](const Context& failing) {
        return RaggedFillEmptyRowsGrad(Array(map), Array(values), failing).status();
      });
    });
  }
}

template <class F>
void ExpectPartsSumIndependently() {
  std::mt19937 random(3);
  const auto real = WideValues<F>(50'000, 0, random);
  auto imaginary = WideValues<F>(50'000, 2, random);
  std::vector<std::complex<F>> values;
  for (size_t i = 0; i < real.size(); ++i) values.emplace_back(real[i], imaginary[i]);
  ExpectSum(values, std::complex<F>(Expected(real), Expected(imaginary)));
}

TEST(SparseFillEmptyRowsReproducible, PartsOfComplexNumbersSumIndependently) {
  ExpectPartsSumIndependently<float>();
  ExpectPartsSumIndependently<double>();
}

TEST(SparseFillEmptyRowsReproducible, IntegersHaveTheirOneSum) {
  ExpectSum(std::vector<int8_t>{127, 2, -1}, int8_t{-128});
  ExpectSum(std::vector<uint64_t>{UINT64_MAX, 5}, uint64_t{4});
}

}  // namespace
}  // namespace raggrad
