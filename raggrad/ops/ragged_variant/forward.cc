#include <charconv>
#include <cstring>

#include "raggrad/core/error_text.h"
#include "raggrad/core/operands.h"
#include "raggrad/ops/ragged_variant/kernels.h"
#include "raggrad/ops/ragged_variant/ragged_variant.h"

namespace raggrad {
namespace ragged_variant {
namespace {

constexpr std::string_view kOp = "RaggedTensorToVariant";

Status CheckSplitsTypes(std::span<const TensorView> splits) noexcept {
  for (size_t i = 0; i < splits.size(); ++i) {
    const LevelName name(static_cast<int64_t>(i));
    if (Status s = CheckDType(kOp, name, splits[i].dtype, IndexTypes{}); !s.ok()) return s;
    if (splits[i].dtype != splits[0].dtype) {
      return InvalidArgument(kOp, "splits must be of one dtype [", std::string_view(name), ": expected that of ",
                             "rt_nested_splits[0] (", splits[0].dtype, "), got ", splits[i].dtype, "]");
    }
  }
  return {};
}

Result<ToVariantProblem> Check(std::span<const TensorView> splits, const TensorView& values, bool batched) noexcept {
  if (Status s = CheckSplitsTypes(splits); !s.ok()) return s;
  if (Status s = CheckDType(kOp, "rt_dense_values", values.dtype, RaggedTypes{}); !s.ok()) return s;
  if (Status s = CheckOperands(kOp, {{"rt_dense_values", values}}); !s.ok()) return s;
  for (size_t i = 0; i < splits.size(); ++i) {
    const LevelName name(static_cast<int64_t>(i));
    const Operand level{name, splits[i]};
    const bool in_host_memory = splits[i].device.is_cpu();  // which is fine wherever the values are
    if (Status s =
            in_host_memory ? CheckOperands(kOp, {level}) : CheckOperands(kOp, {{"rt_dense_values", values}, level});
        !s.ok()) {
      return s;
    }
  }
  if (!splits.empty() && values.rank() == 0) {
    return InvalidArgument(kOp, "Requires flat_values to have rank>=1 when nested_row_splits is not empty, but is 0.",
                           " [rt_dense_values: expected rank >= 1, got a scalar]");
  }
  if (splits.empty() && batched && values.rank() == 0) {
    return InvalidArgument(kOp, "Can't unbatch rank-0 tensor. [rt_dense_values: expected rank >= 1, got a scalar]");
  }
  return ToVariantProblem{kOp, splits, values, batched};
}

}  // namespace

LevelName::LevelName(int64_t level) noexcept {
  constexpr std::string_view kName = "rt_nested_splits[";
  std::memcpy(text_, kName.data(), kName.size());
  char* const end = std::to_chars(text_ + kName.size(), text_ + sizeof(text_), level).ptr;
  *end = ']';
  size_ = static_cast<size_t>(end + 1 - text_);
}

}  // namespace ragged_variant

Result<VariantArray> RaggedTensorToVariant(std::span<const TensorView> rt_nested_splits,
                                           const TensorView& rt_dense_values, bool batched_input,
                                           const Context& ctx) noexcept {
  using namespace ragged_variant;
  const Result<ToVariantProblem> problem = Check(rt_nested_splits, rt_dense_values, batched_input);
  if (!problem.ok()) return problem.status();
  if (Status s = CheckDevice(kOp, rt_dense_values.device, rt_dense_values.dtype); !s.ok()) return s;
  return WithOp(kOp, [&] { return ragged_variant::on_cpu::ToVariant(*problem, ctx); });
}

}  // namespace raggrad
