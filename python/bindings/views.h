// Python objects as TensorViews, without copies where layout and type allow it.
//
// Objects can be NumPy arrays and scalars, anything with __dlpack__ (torch, JAX, TensorFlow, CuPy) or
// __cuda_array_interface__, raggrad.Tensor, and literals: Python numbers, bytes, str and lists of them. Arrays always
// keep their dtype; literals take the dtype that the argument states.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstddef>
#include <forward_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device.h"
#include "raggrad/core/tensor_view.h"

namespace raggrad::python {

namespace nb = nanobind;

// Which argument of which operator an object is, and what becomes of it if it is a literal.
struct Argument {
  std::string_view op;
  std::string_view name;
  DType literal = DType::kInvalid;  // the dtype of literals; unset: the one they look like, as in TensorFlow
  DType integers = DType::kInt32;   // the dtype of integer literals if `literal` is unset
  std::string_view attribute = {};  // the attribute that states the dtype
  DType stated = DType::kInvalid;   // the dtype it states; unset: the attribute was not given
  bool detached = false;            // true: do not warn if its framework records gradients
  int64_t element = -1;             // which element of a variant array
  int64_t level = -1;               // which of its splits, or which item of a list

  // "indices", "rt_nested_splits[1]", "encoded_ragged_grad[3].values", "encoded_ragged[3].nested_splits[1]"
  std::string Name() const;
  DType LiteralDType() const { return stated != DType::kInvalid ? stated : literal; }
};

// Literals, and objects that have only __array__, count as NumPy.
ArrayType TypeOf(nb::handle object);
inline Kind KindOf(nb::handle object) { return TypeOf(object).kind; }

// Keeps alive everything that the views of one call point to. Destroy it with the GIL held.
class KeepAlive {
 public:
  using Import = nb::ndarray<nb::ro>;

  void Add(nb::object object) {
    if (num_objects_ < objects_.size()) {
      objects_[num_objects_++] = std::move(object);
    } else {
      more_objects_.push_back(std::move(object));
    }
  }
  const Import& Add(Import import) { return imports_.emplace_front(std::move(import)); }
  int64_t* AddNumber() { return &numbers_.emplace_front(); }
  String* AddStrings(size_t count) { return strings_.emplace_front(std::make_unique<String[]>(count)).get(); }
  std::byte* AddBytes(size_t count) {
    return bytes_.emplace_front(std::make_unique_for_overwrite<std::byte[]>(count)).get();
  }

  // The stream and memory of the call, which the first operand in device memory decides.
  const std::optional<DeviceSource>& source() const { return source_; }
  const DeviceSource& Use(const DeviceSource& source) { return source_ ? *source_ : source_.emplace(source); }

 private:
  // The operands of most calls fit into the array: a tiny call need not allocate memory for them.
  std::array<nb::object, 6> objects_;
  size_t num_objects_ = 0;
  std::vector<nb::object> more_objects_;
  // Lists keep their elements in place when more are added or the whole moves.
  std::forward_list<Import> imports_;
  std::forward_list<int64_t> numbers_;
  std::forward_list<std::unique_ptr<String[]>> strings_;
  std::forward_list<std::unique_ptr<std::byte[]>> bytes_;
  std::optional<DeviceSource> source_;
};

// Whether an object takes the dtype that the argument asks for: Python numbers, bytes, str and lists.
bool IsLiteral(nb::handle object);

// How Python names the type of an object.
std::string TypeName(nb::handle object);

// The view of any object. Does not check the dtype that the attribute states.
TensorView ViewOfAny(nb::handle object, const Argument& argument, KeepAlive& keep);

// The view of an argument. Raises if the object is no tensor or its dtype contradicts the attribute.
TensorView ViewOf(nb::handle object, const Argument& argument, KeepAlive& keep);

// The view of ids in int32 or int64, as operators take them. Smaller integers are copied into int32, uint32 and uint64
// into int64, literals into the smaller type that holds them all. Raises for an id of more than 63 bits.
TensorView IdsOf(nb::handle object, const Argument& argument, KeepAlive& keep);

}  // namespace raggrad::python
