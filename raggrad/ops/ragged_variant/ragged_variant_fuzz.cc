// Holds the family's operator against reference.h: see fuzz/README.md.
#include "fuzz/driver.h"
#include "fuzz/operand.h"
#include "raggrad/ops/ragged_variant/ragged_variant.h"
#include "raggrad/ops/ragged_variant/reference.h"

namespace raggrad::ragged_variant {
namespace {

using fuzz::Expected;
using fuzz::FuzzInput;
using fuzz::Operand;

constexpr double kLargestReference = 1 << 16;  // zeros that the reference is asked to make

struct Call {
  DType dtype;
  std::vector<std::optional<Operand>> elements;  // their values
  std::vector<std::optional<RaggedView>> element_views;
  Shape shape;
  std::optional<Operand> row_splits, dense_values_shape;

  VariantArrayView encoded() const { return {shape, element_views}; }
};

Operand MakeSplits(FuzzInput& in, const std::vector<int64_t>& rows) {
  if (in.OneIn(16)) return {in, testing::TensorOf(std::vector<int64_t>{in.Below(3)}, Shape{})};
  std::vector<int64_t> splits = testing::Generator::RowSplits<int64_t>(rows);
  if (in.OneIn(32)) splits.resize(static_cast<size_t>(in.Below(4)));
  if (!splits.empty() && in.OneIn(16)) {
    const size_t place = static_cast<size_t>(in.Below(65536)) % splits.size();
    splits[place] = in.Values<int64_t>(1)[0];
  }
  const Shape shape{static_cast<int64_t>(splits.size())};
  const DType dtype = in.DTypeOf(IndexTypes{});
  if (dtype == DType::kInt64) return {in, testing::TensorOf(splits, shape)};
  if (dtype != DType::kInt32) return {in, fuzz::AnyTensor(in, dtype, shape, shape[0])};
  std::vector<int32_t> narrow;
  for (const int64_t split : splits) narrow.push_back(static_cast<int32_t>(split));
  return {in, testing::TensorOf(narrow, shape)};
}

Operand MakeDenseShape(FuzzInput& in, int64_t total_rows, const std::vector<int64_t>& inner) {
  std::vector<int32_t> dims{static_cast<int32_t>(total_rows)};
  for (const int64_t dim : inner) dims.push_back(static_cast<int32_t>(dim));
  if (in.OneIn(16)) dims = in.Values<int32_t>(in.OneIn(8) ? in.Below(300) : in.Below(4));
  const Shape shape{static_cast<int64_t>(dims.size())};
  if (in.OneIn(64)) return {in, fuzz::AnyTensor(in, DType::kInt64, shape, shape[0])};
  return {in, testing::TensorOf(dims, shape)};
}

// Elements that are slices of one tensor [rows, inner...], as the forward makes them: some missing, some of another
// shape or dtype.
Call MakeCall(FuzzInput& in) {
  Call call{in.DTypeOf(RaggedTypes{}), {}, {}, {}, {}, {}};
  std::vector<int64_t> inner;
  for (int64_t rank = in.Below(3); rank > 0; --rank) inner.push_back(in.Below(4));
  const int64_t width = *Shape::Product(inner);
  const int64_t n = in.OneIn(8) ? 1 : in.Count(12, 300);
  const bool large_rows = in.OneIn(64);
  const bool some_missing = in.Below(2) == 0;
  std::vector<int64_t> rows;
  int64_t total = 0;
  for (int64_t i = 0; i < n; ++i) {
    rows.push_back(large_rows ? in.Below(2000) : in.Below(5));
    total += rows.back();
    if (some_missing && in.OneIn(4)) {
      call.elements.emplace_back();
      continue;
    }
    const DType dtype = in.OneIn(100) ? DType::kInt16 : call.dtype;
    const bool flat = in.OneIn(16);
    const Shape shape = flat ? Shape{rows.back() * width} : Shape::WithDim0(rows.back(), inner);
    call.elements.emplace_back(std::in_place, in, fuzz::AnyTensor(in, dtype, shape, rows.back() * width));
  }
  for (const auto& element : call.elements) {
    call.element_views.push_back(element ? std::optional(RaggedView{{}, element->view}) : std::nullopt);
  }
  call.shape = n % 2 == 0 && in.OneIn(4) ? Shape{2, n / 2} : n == 1 && in.OneIn(2) ? Shape{} : Shape{n};
  if (in.OneIn(100)) call.shape = Shape{in.Below(5) - 1};
  call.row_splits.emplace(MakeSplits(in, rows));
  call.dense_values_shape.emplace(MakeDenseShape(in, total, inner));
  return call;
}

// Whether missing elements may stand for more zeros than the reference should make.
bool NeedsManyZeros(const Call& call) {
  const TensorView& splits = call.row_splits->view;
  const TensorView& dense = call.dense_values_shape->view;
  double rows = 1, inner = 1;
  for (int64_t i = 0; i < dense.dim(0); ++i) (i == 0 ? rows : inner) *= std::max(dense.As<int32_t>()[i], 0);
  for (int64_t i = 0; splits.rank() == 1 && i < splits.dim(0); ++i) {
    const int64_t split = splits.dtype == DType::kInt32 ? splits.As<int32_t>()[i] : splits.As<int64_t>()[i];
    rows = std::max(rows, static_cast<double>(split));
  }
  const bool any_missing = std::ranges::any_of(call.elements, [](const auto& element) { return !element; });
  return any_missing && rows * inner > kLargestReference;
}

bool IsWellFormed(const Call& call) {
  const Operand &splits = *call.row_splits, &dense = *call.dense_values_shape;
  if (!Contains(RaggedTypes{}, call.dtype) || !Contains(IndexTypes{}, splits.view.dtype) ||
      dense.view.dtype != DType::kInt32) {
    return false;
  }
  return splits.readable && dense.readable && dense.view.device == Device::kCpu && dense.view.rank() == 1;
}

Expected ExpectedOf(const Call& call) {
  const auto readable = [](const auto& element) {
    return !element || (element->readable && element->view.device == Device::kCpu);
  };
  if (!std::ranges::all_of(call.elements, readable)) return {};
  const TensorView& splits = call.row_splits->view;
  const TensorView& dense = call.dense_values_shape->view;
  const auto result = ReferenceToVariantGradient(call.encoded(), splits, dense, call.dtype);
  if (!result) return {};
  Expected expected{Code::kOk, {}, false};
  if (call.dtype == DType::kString) {
    expected.outputs.push_back(testing::TensorOfStrings(result->shape, result->values));
  } else {
    std::string bytes;
    for (const std::string& value : result->values) bytes += value;
    expected.outputs.push_back(testing::TensorOfBytes(call.dtype, result->shape, bytes));
  }
  return expected;
}

void FuzzGradient(FuzzInput& in) {
  const Call call = MakeCall(in);
  const auto run = [&](const Context& ctx) -> Result<fuzz::Outputs> {
    auto result = RaggedTensorToVariantGradient(call.encoded(), call.row_splits->view, call.dense_values_shape->view,
                                                call.dtype, ctx);
    if (!result.ok()) return result.status();
    fuzz::Outputs outputs;
    outputs.push_back(*std::move(result));
    return outputs;
  };
  if (!IsWellFormed(call)) return fuzz::Check({}, in, run);
  if (call.row_splits->view.device != Device::kCpu) {
    // Faults of the shapes come before the device, those of the data after it: either will do.
    const Code code = run({}).status().code();
    if (code != Code::kUnimplemented && code != Code::kInvalidArgument) fuzz::Trap("another device", CodeName(code));
    return;
  }
  if (NeedsManyZeros(call)) {
    testing::ExactAllocator memory(size_t{16} << 20);
    Context ctx;
    ctx.allocator = &memory;
    (void)run(ctx);  // whatever it answers: it must come back
    return;
  }
  fuzz::Check(ExpectedOf(call), in, run);
}

}  // namespace
}  // namespace raggrad::ragged_variant

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  raggrad::fuzz::FuzzInput in(data, size);
  raggrad::ragged_variant::FuzzGradient(in);
  return 0;
}
