#include "raggrad/cpu/float_environment.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "raggrad/testing/odd_environment.h"

namespace raggrad::cpu {
namespace {

using testing::kOddEnvironments;
using testing::OddEnvironment;
using testing::ScopedEnvironment;

struct Results {
  double third, minus_third, quotient, sum;
  float flushed, operand;
  double nan;
};

// Compute() does everything that an environment changes, on values that the compiler does not know.
volatile double three = 3.0;
volatile float least_normal = std::numeric_limits<float>::min();

Results Compute(double one) {
  const double number = three;
  const float tiny = -least_normal;
  Results results;
  results.third = one / number;
  results.minus_third = -one / number;
  results.quotient = one / (number - number);
  results.sum = std::numeric_limits<double>::max() * number;
  results.flushed = tiny * 0.5F;
  results.operand = std::numeric_limits<float>::denorm_min() * (tiny + 1e3F);
  results.nan = std::sqrt(-number);
  return results;
}

void ExpectRight(const Results& results) {
  EXPECT_EQ(std::bit_cast<uint64_t>(results.third), 0x3fd5555555555555U);
  EXPECT_EQ(std::bit_cast<uint64_t>(results.minus_third), 0xbfd5555555555555U);
  EXPECT_EQ(results.quotient, INFINITY);
  EXPECT_EQ(results.sum, INFINITY);
  EXPECT_EQ(std::bit_cast<uint32_t>(results.flushed), 0x80000000U) << "a zero of the same sign";
  EXPECT_EQ(std::bit_cast<uint32_t>(results.operand), 0U);
  EXPECT_TRUE(std::isnan(results.nan));
}

TEST(FloatEnvironment, DoesNotDependOnTheCallers) {
  for (const OddEnvironment& odd : kOddEnvironments) {
    SCOPED_TRACE(odd.name());
    Results results;
    FloatState before, after;
    {
      const ScopedEnvironment environment(odd);
      before = FloatState::Read();
      results = InFloatEnvironment([] { return Compute(1.0); });
      after = FloatState::Read();
    }
    ExpectRight(results);
    EXPECT_EQ(before, after) << "modes, masks and flags";
  }
}

TEST(FloatEnvironment, KeepsFlagsThatWereRaised) {
  std::feclearexcept(FE_ALL_EXCEPT);
  std::feraiseexcept(FE_DIVBYZERO);
  InFloatEnvironment([] { (void)Compute(1.0); });
  EXPECT_EQ(std::fetestexcept(FE_ALL_EXCEPT), FE_DIVBYZERO);
  std::feclearexcept(FE_ALL_EXCEPT);
}

TEST(FloatEnvironment, CanBeNested) {
  const FloatState before = FloatState::Read();
  const double third = InFloatEnvironment([] {
    const double inside = InFloatEnvironment([] { return Compute(1.0).third; });
    return inside + Compute(1.0).flushed;
  });
  EXPECT_EQ(third, 1.0 / 3.0);
  EXPECT_EQ(FloatState::Read(), before);
}

// The arithmetic around the call is the caller's, and stays there.
TEST(FloatEnvironment, LeavesTheCallersArithmeticAlone) {
  const volatile float least = std::numeric_limits<float>::denorm_min();
  const float before = least + least;
  const float inside = InFloatEnvironment([&] { return least + least; });
  const float after = least + least;
  EXPECT_EQ(std::bit_cast<uint32_t>(before), 2U);
  EXPECT_EQ(std::bit_cast<uint32_t>(inside), 0U);
  EXPECT_EQ(std::bit_cast<uint32_t>(after), 2U);
}

}  // namespace
}  // namespace raggrad::cpu
