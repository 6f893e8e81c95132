#include "raggrad/ops/sparse_slice/sparse_slice.h"

#include "dtypes.h"
#include "operators.h"
#include "outputs.h"
#include "runtime.h"
#include "views.h"

namespace raggrad::python {
namespace {

using namespace nb::literals;

nb::object Grad(nb::handle backprop_val_grad, nb::handle input_indices, nb::handle input_start,
                nb::handle output_indices, nb::handle t) {
  constexpr std::string_view kOp = "SparseSliceGrad";
  KeepAlive keep;
  const TensorView grad =
      ViewOf(backprop_val_grad,
             {.op = kOp, .name = "backprop_val_grad", .attribute = "T", .stated = ParseDType(t, kOp, "T")}, keep);
  const auto ids = [&](nb::handle object, std::string_view name) {
    return ViewOf(object, {.op = kOp, .name = name, .literal = DType::kInt64}, keep);
  };
  const TensorView before = ids(input_indices, "input_indices");
  const TensorView start = ids(input_start, "input_start");
  const TensorView after = ids(output_indices, "output_indices");
  return MakeOutput(RunOperator(
                        keep, {}, [&](const Context& ctx) { return SparseSliceGrad(grad, before, start, after, ctx); },
                        IsTiny(grad, before, after)),
                    backprop_val_grad);
}

nb::object Slice(nb::handle indices, nb::handle values, nb::handle shape, nb::handle start, nb::handle size,
                 nb::handle t) {
  constexpr std::string_view kOp = "SparseSlice";
  KeepAlive keep;
  const auto ints = [&](nb::handle object, std::string_view name) {
    return ViewOf(object, {.op = kOp, .name = name, .literal = DType::kInt64}, keep);
  };
  const TensorView index_view = ints(indices, "indices");
  const TensorView value_view =
      ViewOf(values, {.op = kOp, .name = "values", .attribute = "T", .stated = ParseDType(t, kOp, "T")}, keep);
  const TensorView dims = ints(shape, "shape");
  const TensorView begin = ints(start, "start");
  const TensorView extent = ints(size, "size");
  SparseSliceOutput out = RunOperator(
      keep, [&](const Context& ctx) { return SparseSlice(index_view, value_view, dims, begin, extent, ctx); });
  const Likeness like = LikenessOf(values);
  static PyObject* type = nullptr;
  nb::object outputs[] = {MakeOutput(std::move(out.output_indices), like),
                          MakeOutput(std::move(out.output_values), like),
                          MakeOutput(std::move(out.output_shape), like)};
  return NamedTuple(ImportOnce(type, "raggrad.raw_ops.sparse_slice", "SparseSliceOutput"), outputs);
}

}  // namespace

void DefineSparseSlice(nb::module_& module) {
  module.def("SparseSlice", &Slice, "indices"_a.none(), "values"_a.none(), "shape"_a.none(), "start"_a.none(),
             "size"_a.none(), "T"_a.none());
  module.def("SparseSliceGrad", &Grad, "backprop_val_grad"_a.none(), "input_indices"_a.none(), "input_start"_a.none(),
             "output_indices"_a.none(), "T"_a.none());
}

}  // namespace raggrad::python
