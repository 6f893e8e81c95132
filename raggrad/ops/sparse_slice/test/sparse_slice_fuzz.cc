// Compares the family's operators with reference.h: see fuzz/README.md.
#include "raggrad/ops/sparse_slice/kernels.h"
#include "raggrad/ops/sparse_slice/sparse_slice.h"
#include "raggrad/ops/sparse_slice/test/reference.h"
#include "raggrad/testing/fuzz_driver.h"
#include "raggrad/testing/fuzz_operand.h"

namespace raggrad::sparse_slice {
namespace {

using fuzz::Expected;
using fuzz::FuzzInput;
using fuzz::Operand;

// Indices as a forward SparseSlice might have left them: the kept rows of `input`, moved by -start.
struct Indices {
  std::vector<int64_t> input;   // [n, d]
  std::vector<int64_t> start;   // [d]
  std::vector<int64_t> output;  // [m, d]
  int64_t n, m, d;
};

int64_t WrappingSubtract(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

Indices MakeIndices(FuzzInput& in) {
  Indices made{{}, {}, {}, in.Count(60, 60000), 0, in.Below(5)};
  if (!in.large() && in.OneIn(16)) made.d = in.Below(300);
  const int64_t values = 1 + in.Below(in.OneIn(8) ? 256 : 6);  // few of them: duplicates
  made.input = in.Ids<int64_t>(made.n * made.d, values);
  made.start = in.OneIn(4) ? in.Values<int64_t>(made.d) : in.Ids<int64_t>(made.d, 4);
  testing::Generator random = in.Random();
  const int64_t kept_in_16 = in.Below(17);
  for (int64_t i = 0; i < made.n; ++i) {
    if (random.Below(16) >= kept_in_16) continue;
    for (int64_t c = 0; c < made.d; ++c) {
      const int64_t index = made.input[static_cast<size_t>(i * made.d + c)];
      made.output.push_back(WrappingSubtract(index, made.start[static_cast<size_t>(c)]));
    }
    ++made.m;
  }
  if (!made.output.empty() && in.OneIn(8)) {  // a row that matches none, or another one
    int64_t& index = made.output[static_cast<size_t>(in.Below(65536)) % made.output.size()];
    index = WrappingSubtract(index, in.Below(3) - 1);
  }
  return made;
}

struct Operands {
  Operand grad, input, start, output;
};

Code CodeOfForm(const Operands& o) {
  if (!Contains(ValueTypes{}, o.grad.view.dtype)) return Code::kInvalidArgument;
  for (const Operand* operand : {&o.input, &o.start, &o.output}) {
    if (operand->view.dtype != DType::kInt64 || !operand->readable) return Code::kInvalidArgument;
  }
  const Device device = o.grad.view.device;
  if (!o.grad.readable || o.input.view.device != device || o.output.view.device != device ||
      !o.start.view.device.is_cpu()) {
    return Code::kInvalidArgument;
  }
  if (o.input.view.rank() != 2 || o.output.view.rank() != 2 || o.grad.view.rank() != 1 || o.start.view.rank() != 1) {
    return Code::kInvalidArgument;
  }
  const int64_t d = o.input.view.dim(1);
  const int64_t m = o.output.view.dim(0);
  if (o.output.view.dim(1) != d || m > o.input.view.dim(0) || o.grad.view.dim(0) != m || o.start.view.dim(0) != d) {
    return Code::kInvalidArgument;
  }
  return device.is_cpu() ? Code::kOk : Code::kUnimplemented;
}

Expected ExpectedOf(const Operands& o) {
  const auto span = [](const TensorView& view) {
    return std::span(view.As<int64_t>(), static_cast<size_t>(*view.shape.NumElements()));
  };
  const int64_t n = o.input.view.dim(0);
  if (n > 1 << 20) return {Code::kResourceExhausted, {}, false};  // rows without columns: the result is too large
  const int64_t m = o.grad.view.dim(0);
  const auto result = reference::Grad(span(o.input.view), span(o.start.view), span(o.output.view), n, m);
  if (result.used != m) return {Code::kInternal, {}, false};
  Expected expected{Code::kOk, {}, false};
  expected.outputs.push_back(testing::GatherOrZero(o.grad.view, result.sources));
  return expected;
}

void FuzzGrad(FuzzInput& in) {
  const DType dtype = in.DTypeOf(ValueTypes{});
  Indices indices = MakeIndices(in);
  int64_t m = indices.m;
  if (in.OneIn(40)) m = in.Below(8);  // sizes that do not agree
  int64_t start_size = indices.d;
  if (in.OneIn(40)) indices.start.resize(static_cast<size_t>(start_size = in.Below(8)));
  const Operands o{Operand(in, fuzz::AnyTensor(in, dtype, Shape{m}, m)),
                   Operand(in, testing::TensorOf(indices.input, Shape{indices.n, indices.d})),
                   Operand(in, testing::TensorOf(indices.start, Shape{start_size})),
                   Operand(in, testing::TensorOf(indices.output, Shape{indices.m, indices.d}))};

  Expected expected{CodeOfForm(o), {}, false};
  if (expected.code == Code::kOk) expected = ExpectedOf(o);
  fuzz::Check(expected, in, [&](const Context& ctx) -> Result<fuzz::Outputs> {
    Result<Tensor> result = SparseSliceGrad(o.grad.view, o.input.view, o.start.view, o.output.view, ctx);
    if (!result.ok()) return result.status();
    fuzz::Outputs outputs;
    outputs.push_back(*std::move(result));
    return outputs;
  });
}

struct ForwardOperands {
  Operand indices, values, shape, start, size;
};

// Mostly a box within a shape; sometimes shape, start and size do not fit together.
ForwardOperands MakeForward(FuzzInput& in) {
  const DType dtype = in.DTypeOf(SliceTypes{});
  const int64_t n = in.Count(200, 60000);
  const int64_t d = !in.large() && in.OneIn(16) ? in.Below(300) : in.Below(5);
  const int64_t extent = 1 + in.Below(in.OneIn(8) ? 256 : 6);
  const auto numbers = [&](int64_t limit) {
    std::vector<int64_t> some = in.OneIn(16) ? in.Values<int64_t>(d) : in.Ids<int64_t>(d, limit);
    if (in.OneIn(60)) some.push_back(1);
    return some;
  };
  const auto vector = [&](const std::vector<int64_t>& some) {
    return Operand(in, testing::TensorOf(some, Shape{static_cast<int64_t>(some.size())}));
  };
  std::vector<int64_t> shape = numbers(extent);
  if (d < 20 && !in.OneIn(16)) {
    for (int64_t& dim : shape) dim = extent;
  }
  const int64_t num_values = in.OneIn(60) ? in.Below(8) : n;
  return {Operand(in, testing::TensorOf(in.Ids<int64_t>(n * d, extent), Shape{n, d})),
          Operand(in, fuzz::AnyTensor(in, dtype, Shape{num_values}, num_values)), vector(shape), vector(numbers(3)),
          vector(numbers(extent + 3))};
}

Expected ExpectedOf(const ForwardOperands& o) {
  if (!Contains(SliceTypes{}, o.values.view.dtype)) return {};
  const Device device = o.values.view.device;
  if (!o.indices.readable || !o.values.readable || o.indices.view.device != device) return {};
  if (o.indices.view.rank() != 2 || o.values.view.rank() != 1) return {};
  const int64_t n = o.indices.view.dim(0);
  const int64_t d = o.indices.view.dim(1);
  for (const Operand* operand : {&o.shape, &o.start, &o.size}) {
    if (!operand->readable || !operand->view.device.is_cpu() || operand->view.rank() != 1 ||
        operand->view.dim(0) != d) {
      return {};
    }
  }
  if (o.values.view.dim(0) != n || d > Shape::kMaxRank) return {};
  const auto span = [](const TensorView& view) {
    return std::span(view.As<int64_t>(), static_cast<size_t>(*view.shape.NumElements()));
  };
  const auto result =
      reference::Slice(span(o.indices.view), span(o.shape.view), span(o.start.view), span(o.size.view), n);
  if (!result.ok) return {};
  if (!device.is_cpu()) return {Code::kUnimplemented, {}, false};
  Expected expected{Code::kOk, {}, false};
  const int64_t kept = static_cast<int64_t>(result.sources.size());
  expected.outputs.push_back(testing::TensorOf(result.output_indices, Shape{kept, d}));
  expected.outputs.push_back(testing::Gather(o.values.view, result.sources));
  expected.outputs.push_back(testing::TensorOf(result.output_shape, Shape{d}));
  return expected;
}

void FuzzForward(FuzzInput& in) {
  const ForwardOperands o = MakeForward(in);
  fuzz::Check(ExpectedOf(o), in, [&](const Context& ctx) -> Result<fuzz::Outputs> {
    auto result = SparseSlice(o.indices.view, o.values.view, o.shape.view, o.start.view, o.size.view, ctx);
    if (!result.ok()) return result.status();
    fuzz::Outputs outputs;
    outputs.push_back(std::move(result->output_indices));
    outputs.push_back(std::move(result->output_values));
    outputs.push_back(std::move(result->output_shape));
    return outputs;
  });
}

}  // namespace
}  // namespace raggrad::sparse_slice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  raggrad::fuzz::FuzzInput in(data, size);
  in.Below(2) == 0 ? raggrad::sparse_slice::FuzzGrad(in) : raggrad::sparse_slice::FuzzForward(in);
  return 0;
}
