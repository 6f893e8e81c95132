#include "raggrad/testing/generators.h"

#include <gmock/gmock.h>

#include <limits>

#include "raggrad/testing/same_bits.h"

namespace raggrad::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Lt;

TEST(Generator, IsReproducible) {
  EXPECT_EQ(Generator(3).Bits(), Generator(3).Bits());
  EXPECT_NE(Generator(3).Bits(), Generator(4).Bits());
  EXPECT_EQ(Generator(0).Bits(), 0xe220a8397b1dcdaf);  // splitmix64's first number: the same on every machine
}

TEST(Generator, IdsAreInRangeAndZipfIsSkewed) {
  Generator random(1);
  EXPECT_THAT(random.UniformIds<int32_t>(1000, 7), Each(AllOf(Ge(0), Lt(7))));
  const auto ids = random.ZipfIds<int64_t>(10000, 1000);
  EXPECT_THAT(ids, Each(AllOf(Ge(0), Lt(1000))));
  const auto of_first = std::ranges::count(ids, 0);
  EXPECT_GT(of_first, 500);
  EXPECT_LT(of_first, 2000);
  EXPECT_GT(*std::ranges::max_element(ids), 900);
}

TEST(Generator, RowsAreRagged) {
  const auto lengths = Generator(2).RowLengths(10000, 8);
  EXPECT_THAT(lengths, Each(Ge(0)));
  EXPECT_GT(std::ranges::count(lengths, 0), 2500);
  EXPECT_GT(*std::ranges::max_element(lengths), 40);
  EXPECT_THAT(Generator::RowSplits<int32_t>({2, 0, 1}), ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(Generator::RowIds<int64_t>({2, 0, 1}), ElementsAre(0, 0, 2));
}

TEST(Generator, ValuesAreAboutOne) {
  const auto values = Generator(3).Values<float>(1000);
  EXPECT_THAT(values, Each(AllOf(Ge(-4.F), Lt(4.F))));
  EXPECT_LT(*std::ranges::min_element(values), -2.F);
  EXPECT_GT(*std::ranges::max_element(values), 2.F);
  for (const BFloat16 value : Generator(4).Values<BFloat16>(1000)) EXPECT_LT(value.bits & 0x7fff, 0x4080);
  for (const Half value : Generator(5).Values<Half>(1000)) EXPECT_LT(value.bits & 0x7fff, 0x4400);
}

template <class T>
void ExpectHostile() {
  const auto values = Generator(6).HostileValues<T>(4000);
  using Limits = std::numeric_limits<T>;
  for (const T wanted : {T{0}, -T{0}, Limits::denorm_min(), -Limits::denorm_min(), Limits::min(), Limits::max(),
                         Limits::lowest(), Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), T{1}}) {
    EXPECT_TRUE(std::ranges::any_of(values, [&](T value) { return SameBits(value, wanted); })) << wanted;
  }
}

TEST(Generator, HostileValuesAreAllThere) {
  ExpectHostile<float>();
  ExpectHostile<double>();
  const auto halves = Generator(7).HostileValues<Half>(4000);
  for (const int wanted : {0x0000, 0x8000, 0x0001, 0x03ff, 0x0400, 0x7bff, 0x7c00, 0xfc00, 0x7c01, 0x7e00}) {
    EXPECT_TRUE(std::ranges::any_of(halves, [&](Half half) { return half.bits == wanted; })) << wanted;
  }
  const auto integers = Generator(8).HostileValues<int8_t>(1000);
  for (const int wanted : {-128, -1, 0, 127}) EXPECT_THAT(integers, ::testing::Contains(wanted));
}

}  // namespace
}  // namespace raggrad::testing
