// Arrays of ragged tensors, as operators take them from Python.
#pragma once

#include <nanobind/nanobind.h>

#include <forward_list>
#include <optional>
#include <span>
#include <vector>

#include "element_reader.h"
#include "outputs.h"
#include "raggrad/core/ragged.h"
#include "views.h"

namespace raggrad::python {

// raggrad._core.Pieces: the result of RaggedTensorToVariant, inside a raggrad.VariantArray. Elements become Python
// objects only when somebody asks for them; operators that take a VariantArray do not.
struct Pieces {
  VariantArray array;
  Likeness like;
};

// raggrad.Ragged.
nb::handle RaggedType();

// The elements of a variant: Pieces, or a list of raggrad.Ragged and None.
class Variant {
 public:
  // `splits` is the dtype of literal splits; without it splits are not read.
  Variant(nb::handle elements, const nb::tuple& shape, Argument values, std::optional<DType> splits);

  VariantArrayView view() const { return {shape_, elements_}; }
  const Likeness& like() const { return like_; }  // the kind of the first element
  const KeepAlive& keep() const { return keep_; }
  KeepAlive& keep() { return keep_; }

 private:
  void Read(const nb::list& elements, Argument argument, std::optional<DType> splits);
  std::span<const TensorView> ReadSplits(const nb::object& nested_splits, Argument argument, DType dtype);

  KeepAlive keep_;
  Shape shape_;
  std::optional<ElementsRead> read_;
  std::forward_list<std::vector<TensorView>> splits_views_;  // of elements that threads could not read
  std::span<const std::optional<RaggedView>> elements_;
  Likeness like_;
};

}  // namespace raggrad::python
