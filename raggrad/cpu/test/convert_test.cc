#include "raggrad/cpu/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "raggrad/cpu/float_environment.h"
#include "raggrad/testing/odd_environment.h"

namespace raggrad::cpu {
namespace {

// The value of a half by its definition, in double.
double HalfValue(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double magnitude = exponent == 31  ? (fraction ? std::nan("") : INFINITY)
                           : exponent == 0 ? std::ldexp(fraction, -24)
                                           : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(ConvertTest, EveryHalfWidensToItsValueAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half half{static_cast<uint16_t>(bits)};
    const float wide = BaselineConvert::Widen(half);
    const double want = HalfValue(half.bits);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(wide));
      EXPECT_GT(BaselineConvert::NarrowToHalf(wide).bits & 0x7fff, 0x7c00);
      continue;
    }
    ASSERT_EQ(wide, want);
    ASSERT_EQ(std::signbit(wide), std::signbit(want));
    ASSERT_EQ(BaselineConvert::NarrowToHalf(wide).bits, half.bits);
  }
}

TEST(ConvertTest, NarrowingToHalfRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const double below = HalfValue(static_cast<uint16_t>(bits));
    const double above = bits == 0x7bff ? 65536.0 : HalfValue(static_cast<uint16_t>(bits + 1));
    const auto middle = static_cast<float>((below + above) / 2);  // exact: half has 11 bits
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(BaselineConvert::NarrowToHalf(middle).bits, even);
    ASSERT_EQ(BaselineConvert::NarrowToHalf(std::nextafter(middle, 0.0F)).bits, bits);
    ASSERT_EQ(BaselineConvert::NarrowToHalf(-std::nextafter(middle, 1e6F)).bits, (bits + 1) | 0x8000);
  }
  EXPECT_EQ(BaselineConvert::NarrowToHalf(1e30F).bits, 0x7c00);
  EXPECT_EQ(BaselineConvert::NarrowToHalf(-std::numeric_limits<float>::denorm_min()).bits, 0x8000);
}

TEST(ConvertTest, NarrowingToBFloat16RoundsToNearestEven) {
  const auto narrow = [](uint32_t bits) { return BaselineConvert::NarrowToBFloat16(std::bit_cast<float>(bits)).bits; };
  EXPECT_EQ(narrow(0x3f808000), 0x3f80);
  EXPECT_EQ(narrow(0x3f808001), 0x3f81);
  EXPECT_EQ(narrow(0x3f818000), 0x3f82);
  EXPECT_EQ(narrow(0x7f7fffff), 0x7f80);
  EXPECT_EQ(narrow(0xff800000), 0xff80);
  EXPECT_GT(narrow(0x7f800001) & 0x7fff, 0x7f80) << "a NaN whose payload is cut off stays a NaN";
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 x{static_cast<uint16_t>(bits)};
    if ((bits & 0x7fff) > 0x7f80) continue;
    ASSERT_EQ(BaselineConvert::NarrowToBFloat16(BaselineConvert::Widen(x)).bits, bits);
  }
}

TEST(ConvertTest, HalfKeepsItsSubnormalsWhileFloatsAreFlushed) {
  InFloatEnvironment([] {
    for (uint32_t bits = 0; bits < 0x800; ++bits) {
      const volatile float wide = BaselineConvert::Widen(Half{static_cast<uint16_t>(bits)});
      ASSERT_EQ(BaselineConvert::NarrowToHalf(wide).bits, bits);
    }
  });
}

TEST(ConvertTest, NansKeepTheirSignAndLoseTheirPayload) {
  for (const uint32_t payload : {0x1U, 0x1000U, 0x2000U, 0x3fffffU, 0x400000U, 0x402000U, 0x7fffffU}) {
    for (const uint32_t sign : {0U, 0x80000000U}) {
      const float nan = std::bit_cast<float>(sign | 0x7f800000 | payload);
      EXPECT_EQ(BaselineConvert::NarrowToHalf(nan).bits, sign >> 16 | 0x7e00);
      EXPECT_EQ(BaselineConvert::NarrowToBFloat16(nan).bits, sign >> 16 | 0x7fc0);
    }
  }
}

#if defined(__x86_64__)  // aarch64 converts by an instruction that follows the rounding mode
TEST(ConvertTest, TheEnvironmentDoesNotMatter) {
  std::mt19937 random(2);
  std::vector<float> values;
  for (uint32_t exponent = 95; exponent < 150; ++exponent) {
    for (int i = 0; i < 200; ++i)
      values.push_back(std::bit_cast<float>(exponent << 23 | (static_cast<uint32_t>(random()) & 0x807fffff)));
  }
  std::vector<Half> want(values.size()), got(values.size());
  std::vector<float> wide(values.size()), wide_again(values.size());
  const auto n = static_cast<int64_t>(values.size());
  BaselineConvert::NarrowRow(values.data(), want.data(), n);
  BaselineConvert::WidenRow(want.data(), wide.data(), n);
  for (const testing::OddEnvironment& odd : testing::kOddEnvironments) {
    {
      const testing::ScopedEnvironment environment(odd);
      BaselineConvert::NarrowRow(values.data(), got.data(), n);
      BaselineConvert::WidenRow(got.data(), wide_again.data(), n);
    }
    ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(Half)), 0) << odd.name();
    ASSERT_EQ(wide_again, wide) << odd.name();
  }
}
#endif

TEST(ConvertTest, RowsEqualElements) {
  std::mt19937 random(1);
  for (int64_t n = 0; n < 40; ++n) {
    std::vector<Half> halves(static_cast<size_t>(n));
    std::vector<BFloat16> brains(static_cast<size_t>(n));
    std::vector<float> wide(static_cast<size_t>(n));
    for (Half& h : halves) h.bits = static_cast<uint16_t>(random() % 0x7c00);
    for (BFloat16& b : brains) b.bits = static_cast<uint16_t>(random() % 0x7f80);
    BaselineConvert::WidenRow(halves.data(), wide.data(), n);
    for (size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(wide[i], BaselineConvert::Widen(halves[i]));
    std::vector<Half> back(halves.size());
    BaselineConvert::NarrowRow(wide.data(), back.data(), n);
    for (size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(back[i].bits, halves[i].bits);
    BaselineConvert::WidenRow(brains.data(), wide.data(), n);
    std::vector<BFloat16> brains_back(brains.size());
    BaselineConvert::NarrowRow(wide.data(), brains_back.data(), n);
    for (size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(brains_back[i].bits, brains[i].bits);
  }
}

}  // namespace
}  // namespace raggrad::cpu
