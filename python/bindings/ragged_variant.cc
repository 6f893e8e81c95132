#include "raggrad/ops/ragged_variant/ragged_variant.h"

#include <optional>
#include <vector>

#include "dtypes.h"
#include "operators.h"
#include "outputs.h"
#include "runtime.h"
#include "views.h"

namespace raggrad::python {
namespace {

using namespace nb::literals;

constexpr std::string_view kGradient = "RaggedTensorToVariantGradient";

// The values of a raggrad.Ragged: its splits are of no concern here. None, which is a missing element, has none.
nb::object ValuesOf(nb::handle element, const Argument& argument) {
  static PyObject* ragged = nullptr;
  static PyObject* const values_name = PyUnicode_InternFromString("values");
  if (element.is_none()) return {};
  const nb::handle type = ImportOnce(ragged, "raggrad.ragged", "Ragged");
  if (!PyObject_TypeCheck(element.ptr(), reinterpret_cast<PyTypeObject*>(type.ptr()))) {
    RaiseInvalid(kGradient, ": ", argument.name, "[", argument.element,
                 "]: expected a raggrad.Ragged, or None for a missing element, got ", TypeName(element));
  }
  nb::object values = nb::steal(PyObject_GetAttr(element.ptr(), values_name));
  if (!values.is_valid()) throw nb::python_error();
  return values;
}

Shape ShapeOf(const nb::tuple& dims) {
  std::vector<int64_t> sizes;
  for (const nb::handle dim : dims) sizes.push_back(nb::cast<int64_t>(dim));
  return Shape(sizes);
}

nb::object Gradient(const nb::list& elements, const nb::tuple& shape, nb::handle row_splits,
                    nb::handle dense_values_shape, nb::handle tvalues, nb::handle tsplits) {
  const DType values_dtype = ParseDType(tvalues, kGradient, "Tvalues");
  if (values_dtype == DType::kInvalid) RaiseInvalid(kGradient, ": Tvalues: expected a dtype, got None");
  KeepAlive keep;
  const size_t count = nb::len(elements);
  keep.Reserve(count + 2);
  std::vector<std::optional<RaggedView>> views(count);
  nb::object first;
  Argument argument{.op = kGradient, .name = "encoded_ragged_grad", .literal = values_dtype};
  for (size_t i = 0; i < count; ++i) {
    argument.element = static_cast<int64_t>(i);
    const nb::object values = ValuesOf(elements[i], argument);
    if (!values.is_valid()) continue;
    views[i] = RaggedView{{}, ViewOf(values, argument, keep)};
    if (!first.is_valid()) first = values;
  }
  const TensorView splits = ViewOf(row_splits,
                                   {.op = kGradient,
                                    .name = "row_splits",
                                    .literal = DType::kInt64,
                                    .attribute = "Tsplits",
                                    .stated = ParseDType(tsplits, kGradient, "Tsplits")},
                                   keep);
  const TensorView dense_shape =
      ViewOf(dense_values_shape, {.op = kGradient, .name = "dense_values_shape", .literal = DType::kInt32}, keep);
  const VariantArrayView array{ShapeOf(shape), views};
  return MakeOutput(RunOperator(false,
                                [&](const Context& ctx) {
                                  return RaggedTensorToVariantGradient(array, splits, dense_shape, values_dtype, ctx);
                                }),
                    first.is_valid() ? first : nb::none());
}

}  // namespace

void DefineRaggedVariant(nb::module_& module) {
  module.def("RaggedTensorToVariantGradient", &Gradient, "elements"_a, "shape"_a, "row_splits"_a.none(),
             "dense_values_shape"_a.none(), "Tvalues"_a.none(), "Tsplits"_a.none());
}

}  // namespace raggrad::python
