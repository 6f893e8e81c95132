// The gradient along maps that ascend, or seem to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "raggrad/ops/sparse_fill_empty_rows/test/test_grad.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/random_tensor.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::testing::EachDType;
using ::raggrad::testing::Generator;
using ::raggrad::testing::NameOfDType;
using ::raggrad::testing::RandomTensor;
using sparse_fill_empty_rows::ExpectAsReference;

void ExpectAsReference(const std::vector<int64_t>& map, int64_t n_full, DType dtype = DType::kFloat64) {
  Generator random(static_cast<uint64_t>(n_full));
  ExpectAsReference(map, RandomTensor(random, dtype, Shape{n_full}).view());
}

// Names each place with the given chance, in percent.
std::vector<int64_t> AscendingMap(int64_t n_full, int64_t percent, uint64_t seed) {
  Generator random(seed);
  std::vector<int64_t> map;
  for (int64_t j = 0; j < n_full; ++j) {
    if (random.Below(100) < percent) map.push_back(j);
  }
  return map;
}

TEST(FillEmptyRowsGradAscending, EveryDensity) {
  for (const int64_t percent : {1, 20, 50, 80, 99, 100}) {
    for (const int64_t n_full : {1, 2, 3, 5, 100, 130'000}) {
      const std::vector<int64_t> map = AscendingMap(n_full, percent, 3);
      for (const DType dtype : {DType::kInt8, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kComplex128}) {
        ExpectAsReference(map, n_full, dtype);
      }
    }
  }
}

TEST(FillEmptyRowsGradAscending, LongGaps) {
  std::vector<int64_t> dense(40'000), late(40'000), split(40'000);
  std::iota(dense.begin(), dense.end(), int64_t{0});
  std::iota(late.begin(), late.end(), int64_t{60'000});
  std::iota(split.begin(), split.end(), int64_t{0});
  for (size_t i = 20'000; i < split.size(); ++i) split[i] += 60'000;
  for (const auto& map : {dense, late, split}) ExpectAsReference(map, 100'000);
}

TEST(FillEmptyRowsGradAscending, MapsThatOnlySeemToAscend) {
  const std::vector<int64_t> ascending = AscendingMap(130'000, 70, 9);
  const auto n = static_cast<int64_t>(ascending.size());
  for (const int64_t at : {int64_t{65}, n / 7, n / 2 - 1, n / 2, n / 2 + 1, n - 1}) {
    const auto i = static_cast<size_t>(at);
    for (const int64_t wrong : {int64_t{0}, ascending[i - 1], ascending[i - 1] - 1, int64_t{129'999}, int64_t{130'000},
                                int64_t{-1}, INT64_MAX, INT64_MIN}) {
      std::vector<int64_t> map = ascending;
      map[i] = wrong;
      ExpectAsReference(map, 130'000);
    }
  }
  std::vector<int64_t> creeping(40'000);  // passes the last place in short steps, then comes back
  for (size_t i = 0; i < creeping.size(); ++i) creeping[i] = static_cast<int64_t>(3 * i);
  creeping.back() = 99'999;
  ExpectAsReference(creeping, 100'000);
  std::vector<int64_t> again = ascending;  // ascends twice, with more entries than places
  again.insert(again.end(), ascending.begin(), ascending.end());
  ExpectAsReference(again, 130'000);
  again.resize(100'000);
  ExpectAsReference(again, 130'000);
}

class EveryNumber : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Each, EveryNumber, EachDType(NumberTypes{}), NameOfDType);

TEST_P(EveryNumber, SeveralChunks) { ExpectAsReference(AscendingMap(200'000, 80, 4), 200'000, GetParam()); }

// Entries are taken four at a time, and values several at a time. All ways to name the first 9 places begin that in all
// ways.
TEST_P(EveryNumber, EveryStart) {
  constexpr int64_t kPlaces = 9;
  for (uint64_t named = 0; named < uint64_t{1} << kPlaces; ++named) {
    std::vector<int64_t> map;
    for (int64_t j = 0; j < kPlaces; ++j) {
      if ((named >> j & 1) != 0) map.push_back(j);
    }
    for (int64_t j = 0; j < 4; ++j) map.push_back(kPlaces + 1 + 20 * j);  // long gaps
    ExpectAsReference(map, kPlaces + 80, GetParam());
  }
}

TEST_P(EveryNumber, EveryLengthAndEnd) {
  for (int64_t n = 1; n < 70; ++n) {
    for (const int64_t step : {1, 2, 3}) {
      std::vector<int64_t> map(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) map[static_cast<size_t>(i)] = i * step;
      for (const int64_t behind : {0, 1, 3, 40}) ExpectAsReference(map, map.back() + 1 + behind, GetParam());
    }
  }
}

// The wrong entry is behind the first 64, which are checked before the pass.
TEST_P(EveryNumber, WrongInOnePlace) {
  const std::vector<int64_t> ascending = AscendingMap(180, 70, 5);
  for (size_t i = 64; i + 1 < ascending.size(); ++i) {
    const int64_t here = ascending[i];
    for (const int64_t wrong : {ascending[i - 1], ascending[i - 1] - 1, ascending[i + 1], ascending[i + 1] + 1,
                                here + 8, here - 8, here + (int64_t{1} << 32), here + (int64_t{1} << 62), int64_t{0},
                                int64_t{180}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
      std::vector<int64_t> map = ascending;
      map[i] = wrong;
      ExpectAsReference(map, 180, GetParam());
    }
  }
}

TEST(FillEmptyRowsGradAscending, FlushesSubnormalsOnTheWay) {
  const float tiny = std::numeric_limits<float>::min();
  Generator random(6);
  std::vector<float> grad(300'000);
  for (float& x : grad) x = tiny * (static_cast<float>(random.Below(9)) - 4) / 2;
  ExpectAsReference(AscendingMap(300'000, 80, 7), testing::Array(grad).view());
}

}  // namespace
}  // namespace raggrad
