#include "raggrad/cpu/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "raggrad/cpu/flush_subnormals.h"

namespace raggrad::cpu {
namespace {

// The definition, in double: 11 (half) or 8 (bfloat16) bits of precision, ties to even.
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
  const ScopedFlushSubnormals flush;
  for (uint32_t bits = 0; bits < 0x800; ++bits) {
    const volatile float wide = BaselineConvert::Widen(Half{static_cast<uint16_t>(bits)});
    ASSERT_EQ(BaselineConvert::NarrowToHalf(wide).bits, bits);
  }
}

TEST(FlushSubnormalsTest, FlushesOperandsAndResultsAndRestoresTheMode) {
  volatile float tiny = std::numeric_limits<float>::denorm_min();
  volatile double small = std::numeric_limits<double>::min();
  volatile double product = 0;
  volatile float sum = 0;
  {
    const ScopedFlushSubnormals flush;
    sum = -tiny + 0.0F;
    sum = tiny + tiny;
    product = -small * 0.5;
  }
  EXPECT_EQ(sum, 0.0F);
  EXPECT_EQ(std::bit_cast<uint64_t>(static_cast<double>(product)), uint64_t{1} << 63) << "a zero of the sign";
  sum = tiny + tiny;
  EXPECT_NE(std::bit_cast<uint32_t>(static_cast<float>(sum)), 0U) << "the mode was not restored";
}

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
