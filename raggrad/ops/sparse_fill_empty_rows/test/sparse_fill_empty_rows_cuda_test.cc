// The CPU's results and errors on a GPU, and the fast sum.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <limits>
#include <numeric>
#include <string>

#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"
#include "raggrad/testing/always_the_same.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/on_device.h"
#include "raggrad/testing/random_tensor.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

using ::testing::HasSubstr;

enum class MapKind { kAscending, kShuffled, kRepeats };
constexpr MapKind kMapKinds[] = {MapKind::kAscending, MapKind::kShuffled, MapKind::kRepeats};

// n places in [0, n_full).
Array<int64_t> RandomMap(Generator& random, int64_t n, int64_t n_full, MapKind kind) {
  if (kind == MapKind::kRepeats) return random.UniformIds<int64_t>(n, n_full);
  std::vector<int64_t> map(static_cast<size_t>(n_full));
  std::iota(map.begin(), map.end(), 0);
  for (size_t i = map.size(); i > 1; --i) {
    std::swap(map[i - 1], map[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
  }
  map.resize(static_cast<size_t>(n));
  if (kind == MapKind::kAscending) std::sort(map.begin(), map.end());
  return map;
}

Context With(Accumulation accumulation) {
  Context ctx;
  ctx.accumulation = accumulation;
  return ctx;
}

void ExpectSameGrad(const Result<FillEmptyRowsGradOutput>& got, const Result<FillEmptyRowsGradOutput>& want) {
  ExpectSame(got, want, &FillEmptyRowsGradOutput::d_values, &FillEmptyRowsGradOutput::d_default_value);
}

class FillEmptyRowsGradCudaTest : public GpuTest, public ::testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(Each, FillEmptyRowsGradCudaTest, EachDType(NumberTypes{}), NameOfDType);

TEST_P(FillEmptyRowsGradCudaTest, SequentialSumHasTheBitsOfTheCpu) {
  Generator random(1);
  for (const int64_t n_full : {0, 1, 31, 33, 1023, 1025, 4096, 20'001}) {
    for (const int64_t n : {int64_t{0}, n_full / 2, n_full * 4 / 5, n_full}) {
      for (const MapKind kind : kMapKinds) {
        SCOPED_TRACE(std::to_string(n) + " of " + std::to_string(n_full));
        const Array map = RandomMap(random, n, n_full, kind);
        const Tensor grad = HostileTensor(random, GetParam(), Shape{n_full});
        ExpectSameGrad(SparseFillEmptyRowsGrad(OnDevice(map), OnDevice(grad.view()), With(Accumulation::kSequential)),
                       SparseFillEmptyRowsGrad(map, grad.view()));
      }
    }
  }
}

TEST_P(FillEmptyRowsGradCudaTest, LongSequentialSumHasTheBitsOfTheCpu) {
  Generator random(2);
  const int64_t n_full = 100'000;
  const Array map = RandomMap(random, n_full / 3, n_full, MapKind::kRepeats);
  const Tensor grad = RandomTensor(random, GetParam(), Shape{n_full});
  ExpectSameGrad(RaggedFillEmptyRowsGrad(OnDevice(map), OnDevice(grad.view()), With(Accumulation::kSequential)),
                 RaggedFillEmptyRowsGrad(map, grad.view()));
}

TEST_P(FillEmptyRowsGradCudaTest, ReproducibleSumHasTheBitsOfTheCpu) {
  Generator random(10);
  const Context reproducible = With(Accumulation::kReproducible);
  for (const int64_t n_full : {0, 1, 31, 33, 1023, 4096, 4097, 20'001, 100'000}) {
    for (const int64_t n : {int64_t{0}, n_full / 2, n_full * 4 / 5, n_full}) {
      for (const MapKind kind : kMapKinds) {
        SCOPED_TRACE(std::to_string(n) + " of " + std::to_string(n_full));
        const Array map = RandomMap(random, n, n_full, kind);
        const Tensor hostile = HostileTensor(random, GetParam(), Shape{n_full});
        const Tensor ordinary = RandomTensor(random, GetParam(), Shape{n_full});
        for (const TensorView& grad : {hostile.view(), ordinary.view()}) {
          ExpectSameGrad(SparseFillEmptyRowsGrad(OnDevice(map), OnDevice(grad), reproducible),
                         SparseFillEmptyRowsGrad(map, grad, reproducible));
        }
      }
    }
  }
}

template <class T>
std::array<double, 2> Parts(T value) {
  if constexpr (requires { value.imag(); }) {
    return {static_cast<double>(value.real()), static_cast<double>(value.imag())};
  } else {
    return {AsDouble(value), 0};
  }
}

// The epsilons of the additions, and of the result.
template <class T>
constexpr std::pair<double, double> kEpsilons = {0x1p-23, 0x1p-23};
template <>
constexpr std::pair<double, double> kEpsilons<double> = {0x1p-52, 0x1p-52};
template <>
constexpr std::pair<double, double> kEpsilons<std::complex<double>> = kEpsilons<double>;
template <>
constexpr std::pair<double, double> kEpsilons<Half> = {0x1p-23, 0x1p-10};
template <>
constexpr std::pair<double, double> kEpsilons<BFloat16> = {0x1p-23, 0x1p-7};

template <class T>
class FillEmptyRowsFastSumCudaTest : public GpuTest {};
TYPED_TEST_SUITE(FillEmptyRowsFastSumCudaTest, GtestTypes<NumberTypes>);

TYPED_TEST(FillEmptyRowsFastSumCudaTest, IsCloseAndAlwaysTheSame) {
  Generator random(3);
  const int64_t n_full = 300'000;
  const Array grad = random.Values<TypeParam>(n_full);
  const OnDevice device_grad(grad);
  for (const MapKind kind : kMapKinds) {
    const Array map = RandomMap(random, n_full * 4 / 5, n_full, kind);
    const OnDevice device_map(map);
    const auto want = SparseFillEmptyRowsGrad(map, grad);
    const auto got = SparseFillEmptyRowsGrad(device_map, device_grad);
    ASSERT_THAT(want, IsOk());
    ASSERT_THAT(got, IsOk());
    ExpectSame(got->d_values.view(), want->d_values.view());
    const Tensor sum = OnHost(got->d_default_value.view());
    if (kind == MapKind::kShuffled) {
      ExpectAlwaysTheSame([&](const Context& ctx) { return SparseFillEmptyRowsGrad(device_map, device_grad, ctx); },
                          [](const FillEmptyRowsGradOutput& result) {
                            return std::vector{result.d_default_value.view(), result.d_values.view()};
                          });
    }
    if constexpr (std::is_integral_v<TypeParam>) {
      ExpectSame(got->d_default_value.view(), want->d_default_value.view());
      continue;
    }
    std::vector<bool> named(static_cast<size_t>(n_full));
    for (const int64_t place : map.values) named[static_cast<size_t>(place)] = true;
    std::array<double, 2> exact{}, magnitude{};
    for (size_t j = 0; j < named.size(); ++j) {
      if (named[j]) continue;
      for (size_t part = 0; part < 2; ++part) {
        exact[part] += Parts(grad.values[j])[part];
        magnitude[part] += std::abs(Parts(grad.values[j])[part]);
      }
    }
    const auto [added, rounded] = kEpsilons<TypeParam>;
    for (size_t part = 0; part < 2; ++part) {
      EXPECT_NEAR(Parts(*sum.As<TypeParam>())[part], exact[part],
                  40 * added * magnitude[part] + rounded * std::abs(exact[part]));
    }
  }
}

class FillEmptyRowsCudaTest : public GpuTest {};

TEST_F(FillEmptyRowsCudaTest, FirstBadPlaceIsReported) {
  Generator random(4);
  const Array grad = random.Values<float>(5000);
  Array map = RandomMap(random, 4000, 5000, MapKind::kShuffled);
  for (const int64_t bad : {int64_t{5000}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    for (const size_t position : {3999U, 2311U, 1000U, 0U}) {
      map.values[position] = bad;
      for (const Accumulation accumulation : {Accumulation::kSequential, Accumulation::kFast}) {
        ExpectSameGrad(SparseFillEmptyRowsGrad(OnDevice(map), OnDevice(grad), With(accumulation)),
                       SparseFillEmptyRowsGrad(map, grad));
      }
    }
  }
  const Array none = std::vector<float>{};
  ExpectSameGrad(RaggedFillEmptyRowsGrad(OnDevice(map), OnDevice(none)), RaggedFillEmptyRowsGrad(map, none));
}

TEST_F(FillEmptyRowsCudaTest, GradReportsEveryAllocationFailure) {
  Generator random(5);
  const OnDevice map(RandomMap(random, 4000, 5000, MapKind::kShuffled));
  const OnDevice grad(Array(random.Values<BFloat16>(5000)));
  ExpectEveryDeviceAllocationFailureIsReported(
      [&](const Context& ctx) { return SparseFillEmptyRowsGrad(map, grad, ctx).status(); });
}

void ExpectSameFill(const Result<SparseFillEmptyRowsOutput>& got, const Result<SparseFillEmptyRowsOutput>& want) {
  using Output = SparseFillEmptyRowsOutput;
  ExpectSame(got, want, &Output::output_indices, &Output::output_values, &Output::empty_row_indicator,
             &Output::reverse_index_map);
}

// [n, d]; column 0 in [0, rows), the others anything.
Array<int64_t> RandomIndices(Generator& random, int64_t n, int64_t d, int64_t rows, bool by_row) {
  std::vector<int64_t> entry_rows = random.ZipfIds<int64_t>(n, rows);
  for (int64_t& row : entry_rows) row = (row * 7919) % rows;  // spreads the frequent rows
  if (by_row) std::sort(entry_rows.begin(), entry_rows.end());
  Array<int64_t> indices({}, Shape{n, d});
  for (const int64_t row : entry_rows) {
    indices.values.push_back(row);
    for (int64_t c = 1; c < d; ++c) indices.values.push_back(random.Hostile<int64_t>());
  }
  return indices;
}

using TypesButStrings = JoinLists<NumberTypes, TypeList<bool>>;
class FillEmptyRowsForwardCudaTest : public GpuTest, public ::testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(Each, FillEmptyRowsForwardCudaTest, EachDType(TypesButStrings{}), NameOfDType);

TEST_P(FillEmptyRowsForwardCudaTest, HasTheCpusResult) {
  Generator random(6);
  const Tensor default_value = HostileTensor(random, GetParam(), Shape{});
  for (const auto& [n, rows] : {std::pair{0, 1}, {0, 700}, {1, 1}, {257, 1}, {300, 299}, {1000, 5000}, {5000, 700}}) {
    for (const int64_t d : {1, 2, 5}) {
      for (const bool by_row : {true, false}) {
        SCOPED_TRACE(std::to_string(n) + " entries, " + std::to_string(rows) + " rows, d " + std::to_string(d));
        const Array indices = RandomIndices(random, n, d, rows, by_row);
        const Tensor values = HostileTensor(random, GetParam(), Shape{n});
        const Array shape = std::vector<int64_t>(static_cast<size_t>(d), rows);
        ExpectSameFill(
            SparseFillEmptyRows(OnDevice(indices), OnDevice(values.view()), shape, OnDevice(default_value.view())),
            SparseFillEmptyRows(indices, values.view(), shape, default_value.view()));
      }
    }
  }
}

TEST_F(FillEmptyRowsCudaTest, ManyEntriesInAnyOrderAlwaysTheSame) {
  Generator random(7);
  const int64_t n = 300'000, rows = 150'000;
  const Array values = random.Values<float>(n);
  const Array shape = std::vector<int64_t>{rows, 3};
  const float zero = 0;
  for (const bool by_row : {true, false}) {
    const Array indices = RandomIndices(random, n, 2, rows, by_row);
    const OnDevice device_indices(indices), device_values(values), default_value(TensorView::Scalar(zero));
    const auto run = [&](const Context& ctx) {
      return SparseFillEmptyRows(device_indices, device_values, shape, default_value, ctx);
    };
    ExpectSameFill(run({}), SparseFillEmptyRows(indices, values, shape, TensorView::Scalar(zero)));
    ExpectAlwaysTheSame(run, [](const SparseFillEmptyRowsOutput& result) {
      return std::vector{result.output_indices.view(), result.output_values.view(), result.empty_row_indicator.view(),
                         result.reverse_index_map.view()};
    });
  }
}

TEST_F(FillEmptyRowsCudaTest, RaggedForm) {
  Generator random(8);
  const float default_value = 3;
  const auto expect_same = [&](const Array<int64_t>& rowids, int64_t rows) {
    const Array values = random.Values<float>(rowids.shape[0]);
    using Output = RaggedFillEmptyRowsOutput;
    ExpectSame(RaggedFillEmptyRows(OnDevice(rowids), OnDevice(values), TensorView::Scalar(rows),
                                   OnDevice(TensorView::Scalar(default_value))),
               RaggedFillEmptyRows(rowids, values, TensorView::Scalar(rows), TensorView::Scalar(default_value)),
               &Output::output_value_rowids, &Output::output_values, &Output::empty_row_indicator,
               &Output::reverse_index_map);
  };
  expect_same(std::vector<int64_t>{}, 0);  // [0, 1]
  expect_same(std::vector<int64_t>{}, 3);
  expect_same(std::vector<int64_t>{0, 0, 2, 5}, 7);
  expect_same(std::vector<int64_t>{5, 0, 2, 0}, 7);
  expect_same(std::vector<int64_t>{5, 0, 7, 0, -1}, 7);
  expect_same(std::vector<int64_t>{1}, 0);
}

TEST_F(FillEmptyRowsCudaTest, FirstBadRowIsReported) {
  Generator random(9);
  const Array values = random.Values<float>(3000);
  const Array shape = std::vector<int64_t>{100, 1};
  const float zero = 0;
  Array indices = RandomIndices(random, 3000, 2, 100, true);
  for (const int64_t bad : {int64_t{100}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    for (const size_t position : {2999U, 700U, 0U}) {
      indices.values[2 * position] = bad;
      ExpectSameFill(
          SparseFillEmptyRows(OnDevice(indices), OnDevice(values), shape, OnDevice(TensorView::Scalar(zero))),
          SparseFillEmptyRows(indices, values, shape, TensorView::Scalar(zero)));
    }
  }
}

TEST_F(FillEmptyRowsCudaTest, ForwardReportsEveryAllocationFailure) {
  Generator random(10);
  const float zero = 0;
  const OnDevice values(Array(random.Values<float>(3000))), default_value(TensorView::Scalar(zero));
  const Array shape = std::vector<int64_t>{1000, 1};
  for (const bool by_row : {true, false}) {
    const OnDevice indices(RandomIndices(random, 3000, 2, 1000, by_row));
    ExpectEveryDeviceAllocationFailureIsReported(
        [&](const Context& ctx) { return SparseFillEmptyRows(indices, values, shape, default_value, ctx).status(); });
  }
}

TEST_F(FillEmptyRowsCudaTest, StringsHaveNoKernels) {
  const TensorView none{nullptr, DType::kString, Shape{0}, Device::Cuda()};
  const TensorView scalar{&none, DType::kString, Shape{}, Device::Cuda()};
  const OnDevice indices(Array<int64_t>({}, Shape{0, 2}));
  EXPECT_THAT(SparseFillEmptyRows(indices, none, Array<int64_t>({2, 2}), scalar),
              StatusIs(Code::kUnimplemented, HasSubstr("SparseFillEmptyRows: there are no kernels for strings")));
}

}  // namespace
}  // namespace raggrad::testing
