#include "raggrad/ops/ragged_variant/ragged_variant.h"

#include <optional>
#include <utility>
#include <vector>

#include "dtypes.h"
#include "operators.h"
#include "outputs.h"
#include "runtime.h"
#include "views.h"

namespace raggrad::python {
namespace {

using namespace nb::literals;

constexpr std::string_view kToVariant = "RaggedTensorToVariant";
constexpr std::string_view kFromVariant = "RaggedTensorFromVariant";
constexpr std::string_view kGradient = "RaggedTensorToVariantGradient";

// raggrad._core.Pieces: the result of RaggedTensorToVariant, inside a raggrad.VariantArray. Elements become Python
// objects only when somebody asks for them; operators that take a VariantArray do not.
struct Pieces {
  VariantArray array;
  Likeness like;
};

nb::handle RaggedType() {
  static PyObject* ragged = nullptr;
  return ImportOnce(ragged, "raggrad.ragged", "Ragged");
}

nb::object PieceAt(nb::handle_t<Pieces> self, int64_t i) {
  const Pieces& pieces = nb::cast<const Pieces&>(self);
  const auto elements = pieces.array.elements();
  if (i < 0 || i >= static_cast<int64_t>(elements.size())) throw nb::index_error();
  const RaggedView& element = *elements[static_cast<size_t>(i)];  // the operator leaves none missing
  nb::list splits;
  for (const TensorView& level : element.nested_splits) splits.append(MakeOutput(level, self, pieces.like));
  return RaggedType()(splits, MakeOutput(element.values, self, pieces.like));
}

// Reads an attribute that a class has in a slot. Objects of exactly that class need no search through its bases, which
// would be a third of the time per element.
class Slot {
 public:
  Slot(nb::handle type, const char* name)
      : type_(type),
        name_(nb::steal(PyUnicode_InternFromString(name))),
        descriptor_(nb::getattr(type, name)),
        get_(reinterpret_cast<descrgetfunc>(PyType_GetSlot(Py_TYPE(descriptor_.ptr()), Py_tp_descr_get))) {}

  nb::object Of(nb::handle object) const {
    const bool is_known = get_ != nullptr && nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()))).is(type_);
    PyObject* const value =
        is_known ? get_(descriptor_.ptr(), object.ptr(), type_.ptr()) : PyObject_GetAttr(object.ptr(), name_.ptr());
    if (value == nullptr) throw nb::python_error();
    return nb::steal(value);
  }

 private:
  nb::handle type_;
  nb::object name_, descriptor_;
  descrgetfunc get_;
};

// The dtype that an attribute states. The attribute must be given.
DType RequiredDType(nb::handle dtype, std::string_view op, std::string_view attribute) {
  const DType parsed = ParseDType(dtype, op, attribute);
  if (parsed == DType::kInvalid) RaiseInvalid(op, ": ", attribute, ": expected a dtype, got None");
  return parsed;
}

Shape ShapeOf(const nb::tuple& dims) {
  std::vector<int64_t> sizes;
  for (const nb::handle dim : dims) sizes.push_back(nb::cast<int64_t>(dim));
  return Shape(sizes);
}

// The elements of a variant: Pieces, or a list of raggrad.Ragged and None.
class Variant {
 public:
  // `splits` is the dtype of literal splits; without it splits are not read.
  Variant(nb::handle elements, const nb::tuple& shape, Argument values, std::optional<DType> splits) {
    shape_ = ShapeOf(shape);
    if (nb::isinstance<Pieces>(elements)) {
      keep_.Add(nb::borrow(elements));
      const Pieces& pieces = nb::cast<const Pieces&>(elements);
      elements_ = pieces.array.elements();
      like_ = pieces.like;
      if (like_.source) keep_.Use(*like_.source);
    } else {
      Read(nb::cast<nb::list>(elements), values, splits);
    }
  }

  VariantArrayView view() const { return {shape_, elements_}; }
  const Likeness& like() const { return like_; }  // the kind of the first element
  const KeepAlive& keep() const { return keep_; }
  KeepAlive& keep() { return keep_; }

 private:
  void Read(const nb::list& elements, Argument argument, std::optional<DType> splits) {
    const nb::handle ragged = RaggedType();
    const Slot values_slot(ragged, "values"), splits_slot(ragged, "nested_splits");
    const size_t count = nb::len(elements);
    keep_.Reserve(count);
    views_.reserve(count);
    bool first = true;
    for (size_t i = 0; i < count; ++i) {
      const nb::object element = elements[i];
      std::optional<RaggedView>& view = views_.emplace_back();
      if (element.is_none()) continue;
      argument.element = static_cast<int64_t>(i);
      if (!PyObject_TypeCheck(element.ptr(), reinterpret_cast<PyTypeObject*>(ragged.ptr()))) {
        RaiseInvalid(argument.op, ": ", argument.name, "[", i,
                     "]: expected a raggrad.Ragged, or None for a missing element, got ", TypeName(element));
      }
      const nb::object values = values_slot.Of(element);
      view.emplace();
      if (!ViewPlainArray(values, keep_, view->values)) view->values = ViewOf(values, argument, keep_);
      if (splits) ReadSplits(splits_slot.Of(element), argument, *splits);
      if (std::exchange(first, false)) like_ = LikenessOf(values);
    }
    SetSplits(splits.has_value());
    elements_ = views_;
  }

  void ReadSplits(const nb::object& nested_splits, Argument argument, DType dtype) {
    argument.literal = dtype;
    argument.level = 0;
    for (const nb::handle splits : nb::list(nested_splits)) {
      split_views_.push_back(ViewOf(splits, argument, keep_));
      ++argument.level;
    }
    split_counts_.push_back(static_cast<size_t>(argument.level));
  }

  // Runs when split_views_ no longer moves.
  void SetSplits(bool with_splits) {
    const TensorView* next = split_views_.data();
    auto count = split_counts_.begin();
    for (auto& view : views_) {
      if (!with_splits || !view) continue;
      view->nested_splits = {next, *count};
      next += *count++;
    }
  }

  KeepAlive keep_;
  Shape shape_;
  std::vector<std::optional<RaggedView>> views_;
  std::vector<TensorView> split_views_;
  std::vector<size_t> split_counts_;  // of the elements that are not missing
  std::span<const std::optional<RaggedView>> elements_;
  Likeness like_;
};

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

nb::tuple FromVariant(nb::handle elements, const nb::tuple& shape, int64_t input_ragged_rank,
                      int64_t output_ragged_rank, nb::handle tvalues, nb::handle tsplits) {
  const DType values_dtype = RequiredDType(tvalues, kFromVariant, "Tvalues");
  const DType splits_dtype = RequiredDType(tsplits, kFromVariant, "Tsplits");
  const Variant variant(elements, shape, {.op = kFromVariant, .name = "encoded_ragged", .literal = values_dtype},
                        splits_dtype);
  Ragged ragged = RunOperator(variant.keep(), [&](const Context& ctx) {
    return RaggedTensorFromVariant(variant.view(), input_ragged_rank, output_ragged_rank, values_dtype, splits_dtype,
                                   ctx);
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
  module.def("RaggedTensorFromVariant", &FromVariant, "elements"_a, "shape"_a, "input_ragged_rank"_a,
             "output_ragged_rank"_a, "Tvalues"_a.none(), "Tsplits"_a.none());
  module.def("RaggedTensorToVariantGradient", &Gradient, "elements"_a, "shape"_a, "row_splits"_a.none(),
             "dense_values_shape"_a.none(), "Tvalues"_a.none(), "Tsplits"_a.none());
}

}  // namespace raggrad::python
