#include "variant.h"

#include <utility>

#include "runtime.h"

namespace raggrad::python {
namespace {

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

Shape ShapeOf(const nb::tuple& dims) {
  std::vector<int64_t> sizes;
  for (const nb::handle dim : dims) sizes.push_back(nb::cast<int64_t>(dim));
  return Shape(sizes);
}

}  // namespace

nb::handle RaggedType() {
  static PyObject* ragged = nullptr;
  return ImportOnce(ragged, "raggrad.ragged", "Ragged");
}

Variant::Variant(nb::handle elements, const nb::tuple& shape, Argument values, std::optional<DType> splits) {
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

void Variant::Read(const nb::list& elements, Argument argument, std::optional<DType> splits) {
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

void Variant::ReadSplits(const nb::object& nested_splits, Argument argument, DType dtype) {
  argument.literal = dtype;
  argument.level = 0;
  for (const nb::handle splits : nb::list(nested_splits)) {
    split_views_.push_back(ViewOf(splits, argument, keep_));
    ++argument.level;
  }
  split_counts_.push_back(static_cast<size_t>(argument.level));
}

// Runs when split_views_ no longer moves.
void Variant::SetSplits(bool with_splits) {
  const TensorView* next = split_views_.data();
  auto count = split_counts_.begin();
  for (auto& view : views_) {
    if (!with_splits || !view) continue;
    view->nested_splits = {next, *count};
    next += *count++;
  }
}

}  // namespace raggrad::python
