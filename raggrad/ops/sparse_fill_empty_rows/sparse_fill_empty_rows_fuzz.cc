// Holds the family's operators against reference.h: see fuzz/README.md.
#include "fuzz/driver.h"
#include "fuzz/operand.h"
#include "raggrad/ops/sparse_fill_empty_rows/reference.h"
#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"

namespace raggrad::sparse_fill_empty_rows {
namespace {

using fuzz::Expected;
using fuzz::FuzzInput;
using fuzz::Operand;

// OK: what comes next depends on the data.
Code CodeOfForm(const Operand& map, const Operand& grad) {
  if (map.view.dtype != DType::kInt64 || !Contains(NumberTypes{}, grad.view.dtype)) return Code::kInvalidArgument;
  if (!map.readable || !grad.readable || map.view.device != grad.view.device) return Code::kInvalidArgument;
  if (map.view.rank() != 1 || grad.view.rank() != 1) return Code::kInvalidArgument;
  return grad.view.device == Device::kCpu ? Code::kOk : Code::kUnimplemented;
}

template <class T>
Expected ExpectedOf(const Operand& map, const Operand& grad) {
  const std::span places(map.view.As<int64_t>(), static_cast<size_t>(map.view.dim(0)));
  const std::span values(grad.view.As<T>(), static_cast<size_t>(grad.view.dim(0)));
  const auto result = reference::Grad<T>(places, values);
  if (result.bad_position >= 0) return {};
  Expected expected{Code::kOk, {}, false};
  expected.outputs.push_back(testing::TensorOf(result.d_values, map.view.shape));
  expected.outputs.push_back(testing::TensorOf(std::vector<T>{result.d_default_value}, Shape{}));
  return expected;
}

void FuzzGrad(FuzzInput& in) {
  const auto op = in.Below(2) == 0 ? SparseFillEmptyRowsGrad : RaggedFillEmptyRowsGrad;
  const DType dtype = in.DTypeOf(NumberTypes{});
  const int64_t n_full = in.Count(100, 60000);
  const int64_t n = n_full == 0 ? in.Below(2) : in.Count(100, 60000);
  const bool narrow = in.OneIn(100);
  const Operand map(in, narrow ? testing::TensorOf(in.Ids<int32_t>(n, n_full), Shape{n})
                               : testing::TensorOf(in.Ids<int64_t>(n, n_full), Shape{n}));
  const Operand grad(in, fuzz::AnyTensor(in, dtype, Shape{n_full}, n_full));

  Expected expected{CodeOfForm(map, grad), {}, false};
  if (expected.code == Code::kOk) {
    const auto expect = [&]<class T>() -> Status {
      expected = ExpectedOf<T>(map, grad);
      return {};
    };
    if (!Visit(NumberTypes{}, dtype, expect).ok()) fuzz::Trap("reference", "a dtype that the list does not have");
  }
  fuzz::Check(expected, in, [&](const Context& ctx) -> Result<fuzz::Outputs> {
    auto result = op(map.view, grad.view, ctx);
    if (!result.ok()) return result.status();
    fuzz::Outputs outputs;
    outputs.push_back(std::move(result->d_values));
    outputs.push_back(std::move(result->d_default_value));
    return outputs;
  });
}

}  // namespace
}  // namespace raggrad::sparse_fill_empty_rows

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  raggrad::fuzz::FuzzInput in(data, size);
  raggrad::sparse_fill_empty_rows::FuzzGrad(in);
  return 0;
}
