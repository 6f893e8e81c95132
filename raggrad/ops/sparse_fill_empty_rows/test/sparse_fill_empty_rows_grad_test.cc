// The gradient for every type, its running sum, and its errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <complex>
#include <cstring>
#include <limits>
#include <numeric>

#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"
#include "raggrad/ops/sparse_fill_empty_rows/test/test_grad.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/random_tensor.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::testing::Array;
using ::raggrad::testing::CountingAllocator;
using ::raggrad::testing::Difference;
using ::raggrad::testing::EachDType;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::Gather;
using ::raggrad::testing::Generator;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::HostileTensor;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::NameOfDType;
using ::raggrad::testing::RandomTensor;
using ::raggrad::testing::StatusIs;
using sparse_fill_empty_rows::ExpectSameAsReference;
using sparse_fill_empty_rows::Scalar;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace reference = sparse_fill_empty_rows::reference;

constexpr int64_t kSplit = 7 * 16384 + 13;       // entries enough for seven threads
constexpr int64_t kManyPlaces = 2 * 262144 + 5;  // far more places than entries
constexpr auto kMin = std::numeric_limits<int64_t>::min();
constexpr auto kMax = std::numeric_limits<int64_t>::max();

void ExpectDefaultOf(const TensorView& unnamed, const TensorView& want) {
  ForEachSetting([&](const Context& ctx) {
    const auto got = SparseFillEmptyRowsGrad(Array<int64_t>({}), unnamed, ctx);
    ASSERT_THAT(got, IsOk());
    EXPECT_EQ(Difference(got->d_default_value.view(), want), "");
  });
}
template <class T>
void ExpectDefault(const std::vector<T>& unnamed, T want) {
  ExpectDefaultOf(Array(unnamed), TensorView::Scalar(want));
}

std::vector<Half> Halves(const std::vector<uint16_t>& bits) {
  std::vector<Half> values;
  for (const uint16_t b : bits) values.push_back({b});
  return values;
}
std::vector<BFloat16> BFloats(const std::vector<uint16_t>& bits) {
  std::vector<BFloat16> values;
  for (const uint16_t b : bits) values.push_back({b});
  return values;
}

class EveryNumber : public ::testing::TestWithParam<DType> {
 protected:
  void ExpectSame(const std::vector<int64_t>& map, int64_t n_full) {
    ExpectSameAsReference(map, RandomTensor(random_, GetParam(), Shape{n_full}).view());
  }

  Generator random_{1};
};
INSTANTIATE_TEST_SUITE_P(Each, EveryNumber, EachDType(NumberTypes{}), NameOfDType);

TEST_P(EveryNumber, MatchesTheReference) {
  for (const int64_t n_full : {1, 2, 7, 8, 9, 64, 65, 1001}) {
    for (const int64_t n : {int64_t{0}, int64_t{1}, n_full / 2, n_full, 2 * n_full + 1}) {
      SCOPED_TRACE(std::to_string(n) + " entries, " + std::to_string(n_full) + " places");
      ExpectSame(random_.UniformIds<int64_t>(n, n_full), n_full);
    }
  }
}

TEST_P(EveryNumber, MatchesTheReferenceOnHostileValues) {
  for (int repeat = 0; repeat < 100; ++repeat) {
    const int64_t n_full = 1 + random_.Below(20);
    ExpectSameAsReference(random_.UniformIds<int64_t>(random_.Below(20), n_full),
                          HostileTensor(random_, GetParam(), Shape{n_full}).view());
  }
}

TEST_P(EveryNumber, IsSplitOverThreads) { ExpectSame(random_.UniformIds<int64_t>(kSplit, kSplit), kSplit); }

TEST_P(EveryNumber, CopiesAllBitsOfNaNs) {
  std::vector<int64_t> map(1001);
  std::iota(map.rbegin(), map.rend(), 0);
  const Tensor grad = HostileTensor(random_, GetParam(), Shape{1001});
  const Tensor want = Gather(grad.view(), map);
  const auto got = SparseFillEmptyRowsGrad(Array(map), grad.view());
  ASSERT_THAT(got, IsOk());
  EXPECT_EQ(std::memcmp(got->d_values.As<char>(), want.As<char>(), 1001 * DTypeSize(GetParam())), 0);
}

TEST_P(EveryNumber, EmptyInputs) {
  ExpectSame({}, 0);
  const std::string zero(DTypeSize(GetParam()), '\0');
  ExpectDefaultOf({nullptr, GetParam(), Shape{0}}, {zero.data(), GetParam(), Shape{}});
}

TEST_P(EveryNumber, ReportsEveryAllocationFailure) {
  const Array map = random_.UniformIds<int64_t>(50, 10'000);
  const Tensor grad = RandomTensor(random_, GetParam(), Shape{10'000});
  for (const Accumulation accumulation : {Accumulation::kSequential, Accumulation::kFast}) {
    Context ctx;
    ctx.accumulation = accumulation;
    ExpectEveryAllocationFailureIsReported(
        ctx, [&](const Context& failing) { return SparseFillEmptyRowsGrad(map, grad.view(), failing).status(); });
  }
}

TEST(FillEmptyRowsGrad, TheRaggedNameIsTheSameOperator) {
  const Array<int64_t> map({3, 1});
  const Array<float> grad({1, 2, 4, 8});
  const auto got = RaggedFillEmptyRowsGrad(map, grad);
  ASSERT_THAT(got, IsOk());
  EXPECT_TRUE(HoldsBits(got->d_values.view(), Array<float>({8, 2})));
  EXPECT_TRUE(HoldsBits(got->d_default_value.view(), Scalar(5.0F)));
  EXPECT_THAT(RaggedFillEmptyRowsGrad(Array<int64_t>({4}), grad),
              StatusIs(Code::kInvalidArgument, HasSubstr("RaggedFillEmptyRowsGrad: Elements in reverse index")));
}

TEST(FillEmptyRowsGrad, FewEntriesOfManyPlaces) {
  Generator random(6);
  ExpectSameAsReference(random.UniformIds<int64_t>(1000, kManyPlaces), Array(random.Values<uint8_t>(kManyPlaces)));
}

TEST(FillEmptyRowsGrad, SumsStartFromPlusZero) {
  ExpectDefault<float>({-0.0F, -0.0F}, 0.0F);
  ExpectDefault<double>({-0.0}, 0.0);
  ExpectDefault<Half>(Halves({0x8000}), Half{0});
  ExpectDefault<BFloat16>(BFloats({0x8000}), BFloat16{0});
  ExpectDefault<std::complex<double>>({{-0.0, -0.0}}, {0.0, 0.0});
}

TEST(FillEmptyRowsGrad, SixteenBitTypesRoundAtEveryStep) {
  ExpectDefault(Halves({0x6800, 0x3c00, 0x3c00}), Half{0x6800});       // 2048 + 1 + 1 = 2048
  ExpectDefault(BFloats({0x4380, 0x3f80, 0x3f80}), BFloat16{0x4380});  // 256 + 1 + 1 = 256
  ExpectDefault(Halves({0x7bff, 0x4c00, 0xfbff}), Half{0x7c00});       // 65504 + 16 is infinite and stays infinite
}

TEST(FillEmptyRowsGrad, FlushesSubnormalsOfFloat32AndFloat64ButNotOfHalf) {
  const float tiny = std::numeric_limits<float>::min();
  const double tiny64 = std::numeric_limits<double>::min();
  ExpectDefault<float>({tiny / 2, tiny / 2}, 0.0F);   // operands
  ExpectDefault<float>({tiny * 1.5F, -tiny}, 0.0F);   // result
  ExpectDefault<float>({-tiny * 1.5F, tiny}, -0.0F);  // of its sign
  ExpectDefault<double>({tiny64 / 2, tiny64 / 2, tiny64}, tiny64);
  ExpectDefault<std::complex<float>>({{tiny / 2, tiny}, {tiny / 2, tiny}}, {0.0F, tiny * 2});
  ExpectDefault<std::complex<double>>({{tiny64, tiny64 / 2}, {tiny64, tiny64 / 2}}, {tiny64 * 2, 0.0});
  ExpectDefault(BFloats({0x0040, 0x0040}), BFloat16{0});
  ExpectDefault(BFloats({0x00c0, 0x8080}), BFloat16{0});
  ExpectDefault(Halves({0x0200, 0x0200, 0x0001}), Half{0x0401});
  ExpectDefault(Halves({0x0600, 0x8400}), Half{0x0200});
}

TEST(FillEmptyRowsGrad, LeavesTheCallersFloatingPointModeAlone) {
  volatile float tiny = std::numeric_limits<float>::min();
  for (const Accumulation accumulation : {Accumulation::kSequential, Accumulation::kFast}) {
    Context ctx;
    ctx.accumulation = accumulation;
    ASSERT_THAT(SparseFillEmptyRowsGrad(Array<int64_t>({}), Array<float>({1, 2}), ctx), IsOk());
    EXPECT_GT(tiny / 2, 0.0F);
  }
}

TEST(FillEmptyRowsGrad, IntegersWrap) {
  ExpectDefault<int8_t>({127, 1}, -128);
  ExpectDefault<uint8_t>({255, 2}, 1);
  ExpectDefault<int16_t>({-32768, -1}, 32767);
  ExpectDefault<uint16_t>({65535, 65535}, 65534);
  ExpectDefault<int32_t>({std::numeric_limits<int32_t>::max(), 1}, std::numeric_limits<int32_t>::min());
  ExpectDefault<uint32_t>({0xffffffff, 3}, 2);
  ExpectDefault<int64_t>({kMax, 1}, kMin);
  ExpectDefault<uint64_t>({~uint64_t{0}, 1}, 0);
}

TEST(FillEmptyRowsGrad, InfinityAndNaN) {
  const float inf = std::numeric_limits<float>::infinity();
  ExpectDefault<float>({inf, 1}, inf);
  ExpectDefault<float>({inf, -inf}, std::numeric_limits<float>::quiet_NaN());
  ExpectDefault<std::complex<float>>({{inf, 1}, {1, 1}}, {inf, 2});
}

TEST(FillEmptyRowsGradErrors, HostileMapValues) {
  const Array<float> grad({1, 2, 3});
  for (const auto& [value, text] : std::vector<std::pair<int64_t, std::string>>{
           {3, "3"}, {-1, "-1"}, {kMin, "-9223372036854775808"}, {kMax, "9223372036854775807"}}) {
    EXPECT_THAT(SparseFillEmptyRowsGrad(Array<int64_t>({0, value, -7}), grad),
                StatusIs(Code::kInvalidArgument,
                         "SparseFillEmptyRowsGrad: Elements in reverse index must be in [0, 3) "
                         "but got " +
                             text +
                             " [reverse_index_map[1]: expected a place in "
                             "grad_values, got " +
                             text + "]"));
  }
  EXPECT_THAT(SparseFillEmptyRowsGrad(Array<int64_t>({0}), Array<float>({})),
              StatusIs(Code::kInvalidArgument, HasSubstr("Elements in reverse index must be in [0, 0) but got 0")));
}

TEST(FillEmptyRowsGradErrors, TheFirstBadEntryIsReportedWithAnyThreads) {
  Generator random(9);
  const Array grad = random.Values<double>(100);
  for (int repeat = 0; repeat < 20; ++repeat) {
    Array map = random.UniformIds<int64_t>(kSplit, 100);
    for (const int64_t bad : random.UniformIds<int64_t>(5, kSplit)) map.values[static_cast<size_t>(bad)] = 100 + bad;
    const int64_t first = reference::Grad(map.values, grad).bad_position;
    ForEachSetting([&](const Context& base) {
      CountingAllocator allocator;  // checks that everything is freed
      Context ctx = base;
      ctx.allocator = &allocator;
      EXPECT_THAT(SparseFillEmptyRowsGrad(map, grad, ctx),
                  StatusIs(Code::kInvalidArgument,
                           AllOf(HasSubstr("must be in [0, 100) but got " + std::to_string(100 + first) + " "),
                                 HasSubstr("reverse_index_map[" + std::to_string(first) + "]"))));
    });
  }
}

TEST(FillEmptyRowsGradErrors, RanksInTensorFlowsOrder) {
  const Array<int64_t> map({0, 1});
  const Array<float> grad({1, 2});
  const Array<int64_t> map_matrix({0, 1}, {1, 2});
  const Array<float> grad_matrix({1, 2}, {2, 1});
  EXPECT_THAT(SparseFillEmptyRowsGrad(map_matrix, grad),
              StatusIs(Code::kInvalidArgument, HasSubstr("reverse_index_map must be a vector, saw: [1,2] [")));
  EXPECT_THAT(SparseFillEmptyRowsGrad(Scalar<int64_t>(0), grad),
              StatusIs(Code::kInvalidArgument, HasSubstr("reverse_index_map must be a vector, saw: [] [")));
  EXPECT_THAT(SparseFillEmptyRowsGrad(map, grad_matrix),
              StatusIs(Code::kInvalidArgument, HasSubstr("grad_values must be a vector, saw: [2,1] [")));
  EXPECT_THAT(SparseFillEmptyRowsGrad(map, Scalar(1.0F)),
              StatusIs(Code::kInvalidArgument, HasSubstr("grad_values must be a vector, saw: [] [")));
  EXPECT_THAT(SparseFillEmptyRowsGrad(map_matrix, grad_matrix),
              StatusIs(Code::kInvalidArgument, HasSubstr("reverse_index_map must be a vector")));
  EXPECT_THAT(SparseFillEmptyRowsGrad(Array<int64_t>({-1}), grad_matrix),
              StatusIs(Code::kInvalidArgument, HasSubstr("grad_values must be a vector")));
}

TEST(FillEmptyRowsGradErrors, TypesComeFirst) {
  EXPECT_THAT(SparseFillEmptyRowsGrad(Array<int32_t>({0}, {1, 1}), Array(std::vector{QInt8{1}})),
              StatusIs(Code::kInvalidArgument, AllOf(HasSubstr("reverse_index_map"), HasSubstr("got int32"))));
  EXPECT_THAT(SparseFillEmptyRowsGrad(Array<int64_t>({0}, {1, 1}), Array(std::vector{QInt8{1}})),
              StatusIs(Code::kInvalidArgument,
                       AllOf(HasSubstr("grad_values"), HasSubstr("half, bfloat16, float32"), HasSubstr("got qint8"))));
  for (const DType dtype : {DType::kBool, DType::kString, DType::kQInt32, DType::kFloat8E5M2, DType::kInvalid}) {
    TensorView grad = Array<float>({});
    grad.dtype = dtype;
    EXPECT_THAT(SparseFillEmptyRowsGrad(Array<int64_t>({}), grad),
                StatusIs(Code::kInvalidArgument, HasSubstr("dtype")));
  }
}

TEST(FillEmptyRowsGradErrors, OperandsThatAreNoArrays) {
  const Array<int64_t> map({0});
  const Array<float> grad({1});
  TensorView bad = map;
  bad.shape = Shape(std::vector<int64_t>(Shape::kMaxRank + 1, 1));
  EXPECT_THAT(SparseFillEmptyRowsGrad(bad, grad), StatusIs(Code::kResourceExhausted, HasSubstr("reverse_index_map")));
  bad.shape = Shape{-1};
  EXPECT_THAT(SparseFillEmptyRowsGrad(bad, grad), StatusIs(Code::kInvalidArgument, HasSubstr("reverse_index_map")));
  bad = grad;
  bad.data = nullptr;
  EXPECT_THAT(SparseFillEmptyRowsGrad(map, bad), StatusIs(Code::kInvalidArgument, HasSubstr("grad_values")));
}

TEST(FillEmptyRowsGradErrors, Devices) {
  TensorView map = Array<int64_t>({});
  TensorView grad = Array<float>({});
  grad.device = Device::Cuda();
  EXPECT_THAT(SparseFillEmptyRowsGrad(map, grad), StatusIs(Code::kInvalidArgument, HasSubstr("different devices")));
  map.device = Device::Cuda();
  EXPECT_THAT(SparseFillEmptyRowsGrad(map, grad), StatusIs(Code::kUnimplemented, HasSubstr("SparseFillEmptyRowsGrad")));
}

TEST(FillEmptyRowsGrad, ExtraMemoryIsWhatTheHeaderSays) {
  Generator random(10);
  const int64_t n_full = 100'000;
  const Array map = random.UniformIds<int64_t>(1000, n_full);
  const Array grad = random.Values<std::complex<double>>(n_full);
  for (const Accumulation accumulation : {Accumulation::kSequential, Accumulation::kFast}) {
    CountingAllocator allocator;
    Context ctx;
    ctx.allocator = &allocator;
    ctx.accumulation = accumulation;
    ASSERT_THAT(SparseFillEmptyRowsGrad(map, grad, ctx), IsOk());
    const size_t outputs = 1001 * sizeof(std::complex<double>);
    const size_t others = n_full * sizeof(std::complex<double>);
    const size_t block_sums = accumulation == Accumulation::kFast ? (n_full / 4096 + 1) * 16 : 0;
    EXPECT_LE(allocator.peak_bytes(), outputs + others + (n_full / 8 + 8) * 2 + block_sums + 64);
  }
}

// The forward operator, written plainly: rows ascend, entries of a row keep their order, empty rows get the default.
struct Forward {
  std::vector<double> output;
  std::vector<int64_t> reverse_index_map;
};

Forward FillEmptyRows(const std::vector<int64_t>& rows, const std::vector<double>& values, double default_value,
                      int64_t row_count) {
  Forward forward{{}, std::vector<int64_t>(rows.size())};
  for (int64_t row = 0; row < row_count; ++row) {
    const size_t before = forward.output.size();
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] != row) continue;
      forward.reverse_index_map[i] = static_cast<int64_t>(forward.output.size());
      forward.output.push_back(values[i]);
    }
    if (forward.output.size() == before) forward.output.push_back(default_value);
  }
  return forward;
}

TEST(FillEmptyRowsGrad, AgreesWithFiniteDifferences) {
  Generator random(11);
  const auto rows = random.UniformIds<int64_t>(40, 60);
  const auto values = random.Values<double>(40);
  const double default_value = random.Value<double>();
  const auto weights = random.Values<double>(100);
  const auto loss = [&](const std::vector<double>& v, double d) {
    const Forward forward = FillEmptyRows(rows, v, d, 60);
    double sum = 0;
    for (size_t k = 0; k < forward.output.size(); ++k) sum += weights[k] * forward.output[k] * forward.output[k];
    return sum;
  };
  const Forward forward = FillEmptyRows(rows, values, default_value, 60);
  std::vector<double> grad;
  for (size_t k = 0; k < forward.output.size(); ++k) grad.push_back(2 * weights[k] * forward.output[k]);
  const auto got = SparseFillEmptyRowsGrad(Array(forward.reverse_index_map), Array(grad));
  ASSERT_THAT(got, IsOk());

  const double step = 1e-4;
  for (size_t i = 0; i < values.size(); ++i) {
    auto up = values;
    auto down = values;
    up[i] += step;
    down[i] -= step;
    const double slope = (loss(up, default_value) - loss(down, default_value)) / (2 * step);
    EXPECT_NEAR(got->d_values.As<double>()[i], slope, 1e-8);
  }
  const double slope = (loss(values, default_value + step) - loss(values, default_value - step)) / (2 * step);
  EXPECT_NEAR(*got->d_default_value.As<double>(), slope, 1e-8);
}

}  // namespace
}  // namespace raggrad
