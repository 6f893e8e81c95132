#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"

#include "dtypes.h"
#include "operators.h"
#include "outputs.h"
#include "raggrad/cuda/cuda.h"
#include "runtime.h"
#include "views.h"

namespace raggrad::python {
namespace {

using namespace nb::literals;

constexpr char kModule[] = "raggrad.raw_ops.sparse_fill_empty_rows";

void DefineGrad(nb::module_& module, const char* op, decltype(&SparseFillEmptyRowsGrad) compute) {
  module.def(
      op,
      [op, compute](nb::handle reverse_index_map, nb::handle grad_values, nb::handle t,
                    AccumulationArgument accumulation) {
        KeepAlive keep;
        const TensorView map =
            ViewOf(reverse_index_map, {.op = op, .name = "reverse_index_map", .literal = DType::kInt64}, keep);
        const TensorView values = ViewOf(
            grad_values, {.op = op, .name = "grad_values", .attribute = "T", .stated = ParseDType(t, op, "T")}, keep);
        FillEmptyRowsGradOutput out = RunOperator(
            keep, accumulation, [&](const Context& ctx) { return compute(map, values, ctx); }, IsTiny(map, values));
        static PyObject* type = nullptr;
        nb::object outputs[] = {MakeOutput(std::move(out.d_values), grad_values),
                                MakeOutput(std::move(out.d_default_value), grad_values)};
        return NamedTuple(ImportOnce(type, kModule, "FillEmptyRowsGradOutput"), outputs);
      },
      "reverse_index_map"_a.none(), "grad_values"_a.none(), "T"_a.none(), "accumulation"_a.none());
}

template <class Output>
using ForwardFunction = Result<Output> (*)(const TensorView&, const TensorView&, const TensorView&, const TensorView&,
                                           const Context&) noexcept;

// The two forms differ in the names of two arguments and of one output, and in the type of the outputs.
template <class Output>
void DefineForward(nb::module_& module, const char* op, ForwardFunction<Output> compute, const char* indices_name,
                   const char* rows_name, Tensor Output::*output_indices, const char* type_name) {
  module.def(
      op,
      [=](nb::handle indices, nb::handle values, nb::handle rows, nb::handle default_value, nb::handle t) {
        KeepAlive keep;
        const auto ids = [&](nb::handle object, std::string_view name) {
          return ViewOf(object, {.op = op, .name = name, .literal = DType::kInt64}, keep);
        };
        Argument argument{.op = op, .name = "values", .attribute = "T", .stated = ParseDType(t, op, "T")};
        const TensorView index_view = ids(indices, indices_name);
        const TensorView value_view = ViewOf(values, argument, keep);
        const TensorView rows_view = ids(rows, rows_name);
        argument.name = "default_value";
        argument.literal = value_view.dtype;
        const TensorView default_view = ViewOf(default_value, argument, keep);
        const bool literal = IsLiteral(default_value) && value_view.device.is_cuda();
        Output out = RunOperator(keep, [&](const Context& ctx) -> Result<Output> {
          const Result<Tensor> copy = literal ? CopyTensor(default_view, value_view.device, ctx) : Tensor();
          if (!copy.ok()) return copy.status();
          return compute(index_view, value_view, rows_view, literal ? copy->view() : default_view, ctx);
        });
        const Likeness like = LikenessOf(values);
        static PyObject* type = nullptr;
        nb::object outputs[] = {
            MakeOutput(std::move(out.*output_indices), like), MakeOutput(std::move(out.output_values), like),
            MakeOutput(std::move(out.empty_row_indicator), like), MakeOutput(std::move(out.reverse_index_map), like)};
        return NamedTuple(ImportOnce(type, kModule, type_name), outputs);
      },
      nb::arg(indices_name).none(), "values"_a.none(), nb::arg(rows_name).none(), "default_value"_a.none(),
      "T"_a.none());
}

}  // namespace

void DefineSparseFillEmptyRows(nb::module_& module) {
  DefineForward(module, "SparseFillEmptyRows", &SparseFillEmptyRows, "indices", "dense_shape",
                &SparseFillEmptyRowsOutput::output_indices, "SparseFillEmptyRowsOutput");
  DefineForward(module, "RaggedFillEmptyRows", &RaggedFillEmptyRows, "value_rowids", "nrows",
                &RaggedFillEmptyRowsOutput::output_value_rowids, "RaggedFillEmptyRowsOutput");
  DefineGrad(module, "SparseFillEmptyRowsGrad", &SparseFillEmptyRowsGrad);
  DefineGrad(module, "RaggedFillEmptyRowsGrad", &RaggedFillEmptyRowsGrad);
}

}  // namespace raggrad::python
