#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"

#include "dtypes.h"
#include "operators.h"
#include "outputs.h"
#include "runtime.h"
#include "views.h"

namespace raggrad::python {
namespace {

using namespace nb::literals;

void DefineGrad(nb::module_& module, const char* op, decltype(&SparseFillEmptyRowsGrad) compute) {
  module.def(
      op,
      [op, compute](nb::handle reverse_index_map, nb::handle grad_values, nb::handle t, bool fast) {
        KeepAlive keep;
        const TensorView map =
            ViewOf(reverse_index_map, {.op = op, .name = "reverse_index_map", .literal = DType::kInt64}, keep);
        const TensorView values = ViewOf(
            grad_values, {.op = op, .name = "grad_values", .attribute = "T", .stated = ParseDType(t, op, "T")}, keep);
        FillEmptyRowsGradOutput out = RunOperator(fast, [&](const Context& ctx) { return compute(map, values, ctx); });
        return nb::make_tuple(MakeOutput(std::move(out.d_values), grad_values),
                              MakeOutput(std::move(out.d_default_value), grad_values));
      },
      "reverse_index_map"_a.none(), "grad_values"_a.none(), "T"_a.none(), "fast"_a);
}

}  // namespace

void DefineSparseFillEmptyRows(nb::module_& module) {
  DefineGrad(module, "SparseFillEmptyRowsGrad", &SparseFillEmptyRowsGrad);
  DefineGrad(module, "RaggedFillEmptyRowsGrad", &RaggedFillEmptyRowsGrad);
}

}  // namespace raggrad::python
