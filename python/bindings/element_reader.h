// The elements of a list of raggrad.Ragged, read by several threads.
//
// Reading an element takes four cache misses, each of which waits for the one before: the Ragged, its array, the
// array's flags and its dimensions. One thread that reads one element after the other needs a third of the time that
// the copy of 20 rows of 64 float32 takes on two threads. So all threads of the executor read, and ask for the memory
// of later elements meanwhile.
//
// The calling thread has the GIL and waits. Thus nobody can change the objects, and threads without the GIL may read
// their memory, if they call no Python function and count no reference. What cannot be read that way is left to the
// caller. CPython without a GIL turns it on when it imports this module, which does not say that it needs none.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "raggrad/core/ragged.h"
#include "views.h"

namespace raggrad::python {

// An attribute that is a slot of its class: objects hold a pointer to it, all in the same place.
class Slot {
 public:
  // Finds the place in an object of exactly that class, which has the attribute.
  Slot(nb::handle object, const char* name);

  // Whether At() may be called.
  bool IsIn(PyObject* object) const noexcept { return offset_ != 0 && Py_TYPE(object) == type_; }
  // The attribute, or null if it was deleted. Only reads memory.
  PyObject* At(PyObject* object) const noexcept {
    return *reinterpret_cast<PyObject**>(reinterpret_cast<std::byte*>(object) + offset_);
  }
  // The attribute of that name of any object. Without a search through its class if the slot is in it.
  nb::object Of(nb::handle object) const;

 private:
  PyTypeObject* type_;
  nb::object name_;
  size_t offset_ = 0;  // 0: the place was not found
};

// Those of raggrad.Ragged.
struct RaggedSlots {
  Slot values, nested_splits;

  static const RaggedSlots& Get();
};

// The views of elements: 1.5 MB for 16,384 of them, which are not filled before they are made. Only those are destroyed
// that may own memory, because their shapes have many dimensions.
class ElementViews {
 public:
  using Element = std::optional<RaggedView>;

  explicit ElementViews(size_t count)
      : count_(count), memory_(std::make_unique_for_overwrite<std::byte[]>(count * sizeof(Element))) {}
  ElementViews(ElementViews&&) noexcept = default;
  ElementViews& operator=(ElementViews&&) = delete;
  ~ElementViews() {
    for (const size_t i : owning_) std::destroy_at(data() + i);
  }

  Element* data() noexcept { return reinterpret_cast<Element*>(memory_.get()); }
  std::span<const Element> all() const noexcept { return {reinterpret_cast<const Element*>(memory_.get()), count_}; }
  // Makes element i, which is missing so far, to hold a view of any shape.
  RaggedView& Emplace(size_t i) {
    owning_.push_back(i);
    return data()[i].emplace();
  }

 private:
  size_t count_;
  std::unique_ptr<std::byte[]> memory_;
  std::vector<size_t> owning_;
};

struct ElementsRead {
  ElementViews views;                         // of NumPy arrays; elements that are left look missing
  std::unique_ptr<std::byte[]> splits_views;  // to which `views` point
  std::vector<size_t> left;                   // the elements that the caller has to read, ascending
};

// Reads the elements, and their splits if these are asked for. Call it with the GIL.
ElementsRead ReadElements(const nb::list& elements, bool with_splits, KeepAlive& keep);

}  // namespace raggrad::python
