#include "variant.h"

#include <algorithm>
#include <utility>

#include "runtime.h"

namespace raggrad::python {
namespace {

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
  read_.emplace(ReadElements(elements, splits.has_value(), keep_));
  elements_ = read_->views.all();
  const auto is_read = [](const auto& element) { return element.has_value(); };
  const auto first_read = static_cast<size_t>(std::ranges::find_if(elements_, is_read) - elements_.begin());
  const nb::handle ragged = RaggedType();
  const RaggedSlots& slots = RaggedSlots::Get();
  bool first = true;
  for (const size_t i : read_->left) {
    // Asked anew each time: code that an array runs when it is read may shorten the list.
    const nb::object element = nb::borrow(PyList_GetItem(elements.ptr(), static_cast<Py_ssize_t>(i)));
    if (!element.is_valid()) throw nb::python_error();
    if (element.is_none()) continue;
    argument.element = static_cast<int64_t>(i);
    if (!PyObject_TypeCheck(element.ptr(), reinterpret_cast<PyTypeObject*>(ragged.ptr()))) {
      RaiseInvalid(argument.op, ": ", argument.name, "[", i,
                   "]: expected a raggrad.Ragged, or None for a missing element, got ", TypeName(element));
    }
    const nb::object values = slots.values.Of(element);
    RaggedView& view = read_->views.Emplace(i);
    view.values = ViewOf(values, argument, keep_);
    if (splits) view.nested_splits = ReadSplits(slots.nested_splits.Of(element), argument, *splits);
    if (std::exchange(first, false) && i < first_read) like_ = LikenessOf(values);
  }
}

std::span<const TensorView> Variant::ReadSplits(const nb::object& nested_splits, Argument argument, DType dtype) {
  argument.literal = dtype;
  argument.level = 0;
  std::vector<TensorView>& views = splits_views_.emplace_front();
  for (const nb::handle splits : nb::list(nested_splits)) {
    views.push_back(ViewOf(splits, argument, keep_));
    ++argument.level;
  }
  return views;
}

}  // namespace raggrad::python
