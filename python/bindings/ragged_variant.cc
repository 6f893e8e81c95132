#include "raggrad/ops/ragged_variant/ragged_variant.h"

#include <optional>
#include <utility>
#include <vector>

#include "attributes.h"
#include "dtypes.h"
#include "operators.h"
#include "outputs.h"
#include "runtime.h"
#include "variant.h"
#include "views.h"

namespace raggrad::python {
namespace {

using namespace nb::literals;

constexpr std::string_view kToVariant = "RaggedTensorToVariant";
constexpr std::string_view kFromVariant = "RaggedTensorFromVariant";
constexpr std::string_view kGradient = "RaggedTensorToVariantGradient";

nb::object PieceAt(nb::handle_t<Pieces> self, int64_t i) {
  const Pieces& pieces = nb::cast<const Pieces&>(self);
  const auto elements = pieces.array.elements();
  if (i < 0 || i >= static_cast<int64_t>(elements.size())) throw nb::index_error();
  const RaggedView& element = *elements[static_cast<size_t>(i)];  // the operator leaves none missing
  nb::list splits;
  for (const TensorView& level : element.nested_splits) splits.append(MakeOutput(level, self, pieces.like));
  return RaggedType()(splits, MakeOutput(element.values, self, pieces.like));
}

// The dtype that an attribute states. The attribute must be given.
DType RequiredDType(nb::handle dtype, std::string_view op, std::string_view attribute) {
  const DType parsed = ParseDType(dtype, op, attribute);
  if (parsed == DType::kInvalid) RaiseInvalid(op, ": ", attribute, ": expected a dtype, got None");
  return parsed;
}

nb::object ToVariant(const nb::list& nested_splits, nb::handle dense_values, bool batched, nb::handle tvalues,
                     nb::handle tsplits) {
  KeepAlive keep;
  const DType splits_dtype = ParseDType(tsplits, kToVariant, "Tsplits");
  std::vector<TensorView> splits;
  Argument argument{.op = kToVariant,
                    .name = "rt_nested_splits",
                    .literal = DType::kInt64,
                    .attribute = "Tsplits",
                    .stated = splits_dtype,
                    .level = 0};
  for (const nb::handle level : nested_splits) {
    // Literals take the dtype of the first level, so that lists can be mixed with arrays of int32.
    if (!splits.empty()) argument.literal = splits[0].dtype;
    splits.push_back(ViewOf(level, argument, keep));
    ++argument.level;
  }
  const TensorView values = ViewOf(dense_values,
                                   {.op = kToVariant,
                                    .name = "rt_dense_values",
                                    .attribute = "Tvalues",
                                    .stated = ParseDType(tvalues, kToVariant, "Tvalues")},
                                   keep);
  Pieces pieces{
      RunOperator(keep, [&](const Context& ctx) { return RaggedTensorToVariant(splits, values, batched, ctx); }),
      LikenessOf(dense_values)};
  pieces.like.source = keep.source();
  return nb::cast(std::move(pieces));
}

nb::tuple FromVariant(nb::handle elements, const nb::tuple& shape, nb::handle input_ragged_rank,
                      nb::handle output_ragged_rank, nb::handle tvalues, nb::handle tsplits) {
  const DType values_dtype = RequiredDType(tvalues, kFromVariant, "Tvalues");
  const DType splits_dtype = RequiredDType(tsplits, kFromVariant, "Tsplits");
  const Variant variant(elements, shape, {.op = kFromVariant, .name = "encoded_ragged", .literal = values_dtype},
                        splits_dtype);
  const int64_t input_rank = ReadInt(input_ragged_rank, kFromVariant, "input_ragged_rank");
  const int64_t output_rank = ReadInt(output_ragged_rank, kFromVariant, "output_ragged_rank");
  Ragged ragged = RunOperator(variant.keep(), [&](const Context& ctx) {
    return RaggedTensorFromVariant(variant.view(), input_rank, output_rank, values_dtype, splits_dtype, ctx);
  });
  nb::list splits;
  for (Tensor& level : ragged.nested_splits()) splits.append(MakeOutput(std::move(level), variant.like()));
  return nb::make_tuple(splits, MakeOutput(std::move(ragged.values()), variant.like()));
}

nb::object Gradient(nb::handle elements, const nb::tuple& shape, nb::handle row_splits, nb::handle dense_values_shape,
                    nb::handle tvalues, nb::handle tsplits) {
  const DType values_dtype = RequiredDType(tvalues, kGradient, "Tvalues");
  Variant variant(elements, shape, {.op = kGradient, .name = "encoded_ragged_grad", .literal = values_dtype},
                  std::nullopt);
  KeepAlive& keep = variant.keep();
  const TensorView splits = ViewOf(row_splits,
                                   {.op = kGradient,
                                    .name = "row_splits",
                                    .literal = DType::kInt64,
                                    .attribute = "Tsplits",
                                    .stated = ParseDType(tsplits, kGradient, "Tsplits")},
                                   keep);
  const TensorView dense_shape =
      ViewOf(dense_values_shape, {.op = kGradient, .name = "dense_values_shape", .literal = DType::kInt32}, keep);
  Tensor gradient = RunOperator(keep, [&](const Context& ctx) {
    return RaggedTensorToVariantGradient(variant.view(), splits, dense_shape, values_dtype, ctx);
  });
  // Without elements, row_splits says where and what the result is.
  const bool alone = gradient.view().device.is_cuda() && variant.like().kind == Kind::kNumpy;
  return MakeOutput(std::move(gradient), alone ? LikenessOf(row_splits) : variant.like());
}

}  // namespace

void DefineRaggedVariant(nb::module_& module) {
  nb::class_<Pieces>(module, "Pieces", "The elements of a VariantArray that an operator made.",
                     nb::is_weak_referenceable())
      .def("__len__", [](const Pieces& self) { return self.array.elements().size(); })
      .def("__getitem__", &PieceAt, "i"_a);
  module.def("RaggedTensorToVariant", &ToVariant, "rt_nested_splits"_a, "rt_dense_values"_a.none(), "batched_input"_a,
             "Tvalues"_a.none(), "Tsplits"_a.none());
  module.def("RaggedTensorFromVariant", &FromVariant, "elements"_a, "shape"_a, "input_ragged_rank"_a.none(),
             "output_ragged_rank"_a.none(), "Tvalues"_a.none(), "Tsplits"_a.none());
  module.def("RaggedTensorToVariantGradient", &Gradient, "elements"_a, "shape"_a, "row_splits"_a.none(),
             "dense_values_shape"_a.none(), "Tvalues"_a.none(), "Tsplits"_a.none());
}

}  // namespace raggrad::python
