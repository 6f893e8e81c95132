// Compares the family's operators with reference.h: see fuzz/README.md.
#include "raggrad/ops/ragged_variant/ragged_variant.h"
#include "raggrad/ops/ragged_variant/test/reference.h"
#include "raggrad/testing/fuzz_driver.h"
#include "raggrad/testing/fuzz_operand.h"

namespace raggrad::ragged_variant {
namespace {

using fuzz::Expected;
using fuzz::FuzzInput;
using fuzz::Operand;

constexpr double kLargestReference = 1 << 16;  // most zeros that the reference has to make

struct Call {
  DType dtype;
  std::vector<std::optional<Operand>> elements;  // their values
  std::vector<std::optional<RaggedView>> element_views;
  Shape shape;
  std::optional<Operand> row_splits, dense_values_shape;

  VariantArrayView encoded() const { return {shape, element_views}; }
};

// Splits of rows of the given lengths. Rarely a number, or how many there are, is changed.
Operand MakeSplits(FuzzInput& in, const std::vector<int64_t>& rows, DType dtype) {
  std::vector<int64_t> splits = testing::Generator::RowSplits<int64_t>(rows);
  if (in.OneIn(32)) splits.resize(static_cast<size_t>(in.Below(4)));
  if (!splits.empty() && in.OneIn(16)) {
    const size_t place = static_cast<size_t>(in.Below(65536)) % splits.size();
    splits[place] = in.Values<int64_t>(1)[0];
  }
  const Shape shape{static_cast<int64_t>(splits.size())};
  if (dtype == DType::kInt64) return {in, testing::TensorOf(splits, shape)};
  if (dtype != DType::kInt32) return {in, fuzz::AnyTensor(in, dtype, shape, shape[0])};
  std::vector<int32_t> narrow;
  for (const int64_t split : splits) narrow.push_back(static_cast<int32_t>(split));
  return {in, testing::TensorOf(narrow, shape)};
}

Operand MakeRowSplits(FuzzInput& in, const std::vector<int64_t>& rows) {
  if (in.OneIn(16)) return {in, testing::TensorOf(std::vector<int64_t>{in.Below(3)}, Shape{})};
  return MakeSplits(in, rows, in.DTypeOf(IndexTypes{}));
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
  call.row_splits.emplace(MakeRowSplits(in, rows));
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
  return splits.readable && dense.readable && dense.view.device.is_cpu() && dense.view.rank() == 1;
}

Tensor Joined(DType dtype, const ReferenceOutput& output) {
  if (dtype == DType::kString) return testing::TensorOfStrings(output.shape, output.values);
  std::string bytes;
  for (const std::string& value : output.values) bytes += value;
  return testing::TensorOfBytes(dtype, output.shape, bytes);
}

Expected ExpectedOf(const Call& call) {
  const auto readable = [](const auto& element) { return !element || element->readable; };
  if (!std::ranges::all_of(call.elements, readable)) return {};
  const TensorView& splits = call.row_splits->view;
  const TensorView& dense = call.dense_values_shape->view;
  const auto result = ReferenceToVariantGradient(call.encoded(), splits, dense, call.dtype);
  if (!result) return {};
  Expected expected{Code::kOk, {}, false};
  expected.outputs.push_back(Joined(call.dtype, *result));
  return expected;
}

bool IsHuge(const Shape& shape) {
  return std::ranges::any_of(shape.dims(), [](int64_t dim) { return dim > 1 << 20; });
}

// Checks only that a call returns, with a result or an error: it may ask for more memory than the reference can have,
// or for splits that do not fit their type.
template <class Run>
void CheckComesBack(const Run& run) {
  testing::ExactAllocator memory(size_t{16} << 20);
  Context ctx;
  ctx.allocator = &memory;
  (void)run(ctx);
}

// Operands on another device: UNIMPLEMENTED, or INVALID_ARGUMENT for a fault that is checked before the device.
template <class Run>
void CheckOtherDevice(const Run& run) {
  const Code code = run({}).status().code();
  if (code != Code::kUnimplemented && code != Code::kInvalidArgument) fuzz::Trap("another device", CodeName(code));
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
  const auto elsewhere = [](const auto& element) { return element && !element->view.device.is_cpu(); };
  if (!call.row_splits->view.device.is_cpu() || std::ranges::any_of(call.elements, elsewhere)) {
    return CheckOtherDevice(run);
  }
  if (NeedsManyZeros(call)) return CheckComesBack(run);
  fuzz::Check(ExpectedOf(call), in, run);
}

// A ragged tensor: operands, and the views of them that an operator gets.
struct RaggedOperand {
  std::vector<Operand> splits;
  std::vector<TensorView> split_views;
  std::optional<Operand> values;

  RaggedView view() const { return {split_views, values->view}; }
  bool readable() const {
    return values->readable && std::ranges::all_of(splits, [](const Operand& level) { return level.readable; });
  }
  bool on_cpu() const {
    return values->view.device.is_cpu() &&
           std::ranges::all_of(split_views, [](const TensorView& level) { return level.device.is_cpu(); });
  }
};

RaggedOperand MakeRagged(FuzzInput& in, DType dtype, DType splits_dtype, int64_t levels, int64_t rows,
                         const std::vector<int64_t>& inner) {
  RaggedOperand ragged;
  for (int64_t i = 0; i < levels; ++i) {
    std::vector<int64_t> lengths;
    int64_t below = 0;
    for (int64_t row = 0; row < rows; ++row) below += lengths.emplace_back(in.Below(4));
    ragged.splits.push_back(MakeSplits(in, lengths, splits_dtype));
    rows = below;
  }
  for (const Operand& level : ragged.splits) ragged.split_views.push_back(level.view);
  const int64_t count = rows * *Shape::Product(inner);
  ragged.values.emplace(in, fuzz::AnyTensor(in, dtype, Shape::WithDim0(rows, inner), count));
  return ragged;
}

std::vector<int64_t> MakeInner(FuzzInput& in) {
  std::vector<int64_t> inner;
  for (int64_t rank = in.Below(3); rank > 0; --rank) inner.push_back(in.Below(4));
  if (!inner.empty() && inner[0] == 0 && in.Below(4) == 0) inner.push_back(fuzz::HugeDim(in));
  return inner;
}

Tensor CopyOf(const TensorView& view) {
  ReferenceOutput copy{view.shape, {}};
  ReferenceAppend(view, 0, *view.shape.NumElements(), copy.values);
  return Joined(view.dtype, copy);
}

Tensor SplitsOf(DType dtype, const std::vector<int64_t>& splits) {
  const Shape shape{static_cast<int64_t>(splits.size())};
  if (dtype == DType::kInt64) return testing::TensorOf(splits, shape);
  return testing::TensorOf(std::vector<int32_t>(splits.begin(), splits.end()), shape);
}

void Append(const RaggedView& ragged, fuzz::Outputs& outputs) {
  for (const TensorView& level : ragged.nested_splits) outputs.push_back(CopyOf(level));
  outputs.push_back(CopyOf(ragged.values));
}

void Append(const ReferenceRagged& ragged, DType dtype, DType splits_dtype, fuzz::Outputs& outputs) {
  for (const std::vector<int64_t>& level : ragged.splits) outputs.push_back(SplitsOf(splits_dtype, level));
  outputs.push_back(Joined(dtype, ragged.values));
}

void FuzzToVariant(FuzzInput& in) {
  const DType dtype = in.DTypeOf(RaggedTypes{});
  const DType splits_dtype = in.DTypeOf(IndexTypes{});
  const bool batched = !in.OneIn(4);
  const int64_t levels = in.Below(4);
  const std::vector<int64_t> inner = MakeInner(in);
  RaggedOperand ragged = MakeRagged(in, dtype, splits_dtype, levels, in.Count(6, 200), inner);
  if (levels > 1 && in.OneIn(64)) ragged.split_views[1].dtype = DType::kInt16;
  const auto run = [&](const Context& ctx) -> Result<fuzz::Outputs> {
    const auto result = RaggedTensorToVariant(ragged.split_views, ragged.values->view, batched, ctx);
    if (!result.ok()) return result.status();
    fuzz::Outputs outputs;
    outputs.push_back(SplitsOf(DType::kInt64, {result->shape().dims().begin(), result->shape().dims().end()}));
    for (const auto& element : result->elements()) Append(*element, outputs);
    return outputs;
  };
  if (!ragged.on_cpu()) return CheckOtherDevice(run);
  const TensorView& values = ragged.values->view;
  if (batched && values.rank() > 0 && values.dim(0) > 1 << 20) return CheckComesBack(run);  // as many elements
  const bool types =
      Contains(RaggedTypes{}, dtype) && std::ranges::all_of(ragged.split_views, [&](const TensorView& level) {
        return Contains(IndexTypes{}, level.dtype) && level.dtype == ragged.split_views[0].dtype;
      });
  Expected expected;
  if (types && ragged.readable()) {
    if (const auto result = ReferenceToVariant(ragged.split_views, ragged.values->view, batched)) {
      expected.code = Code::kOk;
      expected.outputs.push_back(SplitsOf(DType::kInt64, {result->shape.dims().begin(), result->shape.dims().end()}));
      for (const ReferenceRagged& element : result->elements) {
        Append(element, dtype, splits_dtype, expected.outputs);
      }
    }
  }
  fuzz::Check(expected, in, run);
}

void FuzzFromVariant(FuzzInput& in) {
  const DType dtype = in.DTypeOf(RaggedTypes{});
  const DType splits_dtype = in.DTypeOf(IndexTypes{});
  const int64_t levels = in.Below(3);
  const std::vector<int64_t> inner = MakeInner(in);
  std::vector<int64_t> dims;
  for (int64_t rank = in.Below(4); rank > 0; --rank) dims.push_back(in.Below(4));
  Shape shape(dims);
  if (shape.NumElements() == 0 && in.Below(4) == 0) shape = fuzz::Stretched(in, shape);
  std::vector<RaggedOperand> raggeds;
  for (int64_t i = shape.NumElements().value_or(0); i > 0; --i) {
    const DType own_dtype = in.OneIn(100) ? DType::kInt16 : dtype;
    const DType own_splits = in.OneIn(100) ? DType::kInt64 : splits_dtype;
    const int64_t own_levels = in.OneIn(100) ? in.Below(3) : levels;
    raggeds.push_back(
        MakeRagged(in, own_dtype, own_splits, own_levels, in.Below(4), in.OneIn(100) ? MakeInner(in) : inner));
  }
  std::vector<std::optional<RaggedView>> elements;
  for (const RaggedOperand& ragged : raggeds) {
    elements.push_back(in.OneIn(100) ? std::nullopt : std::optional(ragged.view()));
  }
  const VariantArrayView encoded{in.OneIn(100) ? Shape{in.Below(5) - 1} : shape, elements};
  int64_t input_rank = in.OneIn(2) ? -1 : levels;
  int64_t output_rank = in.OneIn(4) ? 0 : levels + shape.rank();
  if (in.OneIn(16)) input_rank = in.Below(5) - 2;
  if (in.OneIn(16)) output_rank = in.Below(7) - 1;

  const auto run = [&](const Context& ctx) -> Result<fuzz::Outputs> {
    const auto result = RaggedTensorFromVariant(encoded, input_rank, output_rank, dtype, splits_dtype, ctx);
    if (!result.ok()) return result.status();
    fuzz::Outputs outputs;
    Append(result->view(), outputs);
    return outputs;
  };
  const auto all = [&](bool (RaggedOperand::*property)() const) {
    for (size_t i = 0; i < raggeds.size(); ++i) {
      if (elements[i] && !(raggeds[i].*property)()) return false;
    }
    return true;
  };
  if (!all(&RaggedOperand::on_cpu)) return CheckOtherDevice(run);
  const auto huge = [](const RaggedOperand& ragged) { return IsHuge(ragged.values->view.shape); };
  if (IsHuge(encoded.shape) || std::ranges::any_of(raggeds, huge)) return CheckComesBack(run);
  Expected expected;
  if (Contains(RaggedTypes{}, dtype) && Contains(IndexTypes{}, splits_dtype) && all(&RaggedOperand::readable)) {
    if (const auto result = ReferenceFromVariant(encoded, input_rank, output_rank, dtype, splits_dtype)) {
      expected.code = Code::kOk;
      Append(*result, dtype, splits_dtype, expected.outputs);
    }
  }
  fuzz::Check(expected, in, run);
}

}  // namespace
}  // namespace raggrad::ragged_variant

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace raggrad::ragged_variant;
  // All other first bytes mean the gradient, because its corpus is older than the other two operators.
  constexpr uint8_t kToVariant = 0xE0, kFromVariant = 0xF0;
  const bool forward = size > 0 && data[0] >= kToVariant;
  raggrad::fuzz::FuzzInput in(data + forward, size - forward);
  if (!forward) {
    FuzzGradient(in);
  } else if (data[0] < kFromVariant) {
    FuzzToVariant(in);
  } else {
    FuzzFromVariant(in);
  }
  return 0;
}
