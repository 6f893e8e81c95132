#include "element_reader.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "plain_array.h"
#include "raggrad/cpu/chunks.h"
#include "runtime.h"
#include "variant.h"

namespace raggrad::python {
namespace {

constexpr int64_t kGrain = 1024;         // elements: some 20 us of reading them
constexpr int64_t kChunksPerWorker = 4;  // threads that slept come late
constexpr size_t kMostLevels = 8;        // of splits that threads read; room for them is made for every element

template <class T>
std::unique_ptr<std::byte[]> RoomFor(size_t count) {
  return std::make_unique_for_overwrite<std::byte[]>(count * sizeof(T));
}

// Where threads write what they read. `levels` is the number of splits that an element must have.
struct Places {
  size_t levels;
  ElementViews::Element* views;
  TensorView* splits_views;  // `levels` for each element
  PyObject** owners;         // 1 + `levels` for each element, to be kept alive; null: the same as before
  bool* left;
};

// Reads some elements on any thread.
class Reader {
 public:
  Reader(PyObject* list, const RaggedSlots& slots, bool with_splits, const Places& places) noexcept
      : list_(list), slots_(slots), with_splits_(with_splits), places_(places) {}

  // Each step asks the memory for what the next one reads. It runs kAhead elements ahead, so that it comes in time.
  void Read(int64_t begin, int64_t end) noexcept {
    const auto has = [=](int64_t i) { return begin <= i && i < end; };
    for (int64_t i = begin; i < end + 3 * kAhead; ++i) {
      if (has(i)) FetchElement(i);
      if (has(i - kAhead)) FetchValues(i - kAhead);
      if (has(i - 2 * kAhead)) FetchDims(i - 2 * kAhead);
      if (has(i - 3 * kAhead)) ReadElement(i - 3 * kAhead);
    }
  }

 private:
  static constexpr int64_t kAhead = 8;
  static constexpr size_t kRing = 32;
  static_assert(3 * kAhead < kRing);

  PyObject*& element(int64_t i) noexcept { return elements_[static_cast<size_t>(i) % kRing]; }
  // Null unless the element is a plain Ragged.
  PyObject*& values(int64_t i) noexcept { return values_[static_cast<size_t>(i) % kRing]; }

  void FetchElement(int64_t i) noexcept {
    element(i) = PyList_GetItem(list_, i);  // only reads memory, as long as there is such an item in the list
    __builtin_prefetch(element(i));
    __builtin_prefetch(places_.views + i, 1);
  }
  void FetchValues(int64_t i) noexcept {
    values(i) = slots_.values.IsIn(element(i)) ? slots_.values.At(element(i)) : nullptr;
    if (values(i) == nullptr) return;
    FetchArray(values(i));
    if (with_splits_) __builtin_prefetch(slots_.nested_splits.At(element(i)));
  }
  void FetchDims(int64_t i) noexcept {
    if (values(i) != nullptr) FetchDimsOf(values(i));
  }

  void ReadElement(int64_t i) noexcept {
    const auto place = static_cast<size_t>(i);
    PyObject** const owners = places_.owners + place * (1 + places_.levels);
    auto* const view = new (places_.views + place) ElementViews::Element(empty_);
    const bool is_read = values(i) != nullptr && ViewElement(i, **view, owners);
    places_.left[place] = !is_read && element(i) != Py_None;
    if (!is_read) {
      view->reset();
      std::fill_n(owners, 1 + places_.levels, nullptr);
      return;
    }
    for (size_t k = 0; k <= places_.levels; ++k) {
      owners[k] = owners[k] == last_owners_[k] ? nullptr : (last_owners_[k] = owners[k]);
    }
  }

  bool ViewElement(int64_t i, RaggedView& view, PyObject** owners) noexcept {
    if (!ViewPlainArray(values(i), view.values, owners[0])) return false;
    if (!with_splits_) return true;
    const size_t place = static_cast<size_t>(i);
    const std::span splits(places_.splits_views + place * places_.levels, places_.levels);
    PyObject* const levels = slots_.nested_splits.At(element(i));
    if (levels == nullptr || !PyList_CheckExact(levels) || PyList_Size(levels) != std::ssize(splits)) return false;
    for (size_t level = 0; level < splits.size(); ++level) {
      PyObject* const array = PyList_GetItem(levels, static_cast<Py_ssize_t>(level));
      if (!ViewPlainArray(array, splits[level], owners[1 + level])) return false;
    }
    view.nested_splits = splits;
    return true;
  }

  PyObject* const list_;
  const RaggedSlots& slots_;
  const bool with_splits_;
  const Places places_;
  // Copied, because g++ makes a new view by an instruction for long fills, which takes 6 ns.
  const ElementViews::Element empty_ = RaggedView{};
  PyObject* elements_[kRing];
  PyObject* values_[kRing];
  PyObject* last_owners_[1 + kMostLevels] = {};  // neighbours are often slices of one array, which is kept alive once
};

// The number of splits that the first element has, and probably all others. Splits beyond kMostLevels are not read.
size_t LevelsOfFirst(const nb::list& elements, const RaggedSlots& slots) {
  for (const nb::handle element : elements) {
    if (element.is_none()) continue;
    if (!slots.nested_splits.IsIn(element.ptr())) return 0;
    PyObject* const splits = slots.nested_splits.At(element.ptr());
    const size_t levels = splits != nullptr && PyList_CheckExact(splits) ? nb::len(splits) : 0;
    return levels <= kMostLevels ? levels : 0;
  }
  return 0;
}

}  // namespace

Slot::Slot(nb::handle object, const char* name)
    : type_(Py_TYPE(object.ptr())), name_(nb::steal(PyUnicode_InternFromString(name))) {
  const nb::object value = nb::getattr(object, name_);
  const auto size = nb::cast<size_t>(object.type().attr("__basicsize__"));
  constexpr size_t kPointer = sizeof(PyObject*);
  for (size_t offset = sizeof(PyObject); offset + kPointer <= size; offset += kPointer) {
    PyObject* found = nullptr;
    std::memcpy(&found, reinterpret_cast<const std::byte*>(object.ptr()) + offset, kPointer);
    if (found == value.ptr()) offset_ = offset;
  }
}

nb::object Slot::Of(nb::handle object) const {
  if (PyObject* const value = IsIn(object.ptr()) ? At(object.ptr()) : nullptr; value != nullptr) {
    return nb::borrow(value);
  }
  PyObject* const value = PyObject_GetAttr(object.ptr(), name_.ptr());
  if (value == nullptr) throw nb::python_error();
  return nb::steal(value);
}

const RaggedSlots& RaggedSlots::Get() {
  static const RaggedSlots* slots = nullptr;  // the GIL guards it, as it does ImportOnce()
  if (slots == nullptr) {
    const nb::object ragged = RaggedType()(nb::list(), nb::list());
    slots = new RaggedSlots{Slot(ragged, "values"), Slot(ragged, "nested_splits")};
  }
  return *slots;
}

ElementsRead ReadElements(const nb::list& elements, bool with_splits, KeepAlive& keep) {
  const RaggedSlots& slots = RaggedSlots::Get();
  const size_t count = nb::len(elements);
  const size_t levels = with_splits ? LevelsOfFirst(elements, slots) : 0;
  ElementsRead read{ElementViews(count), RoomFor<TensorView>(count * levels), {}};
  const std::unique_ptr<std::byte[]> owners = RoomFor<PyObject*>(count * (1 + levels));
  const auto left = std::make_unique_for_overwrite<bool[]>(count);
  const Places places{levels, read.views.data(), reinterpret_cast<TensorView*>(read.splits_views.get()),
                      reinterpret_cast<PyObject**>(owners.get()), left.get()};

  const auto read_some = [&](int64_t, int64_t begin, int64_t end) {
    Reader(elements.ptr(), slots, with_splits, places).Read(begin, end);
  };
  const auto n = static_cast<int64_t>(count);
  if (n < 2 * kGrain) {  // does not start the default executor
    read_some(0, 0, n);
  } else {
    const std::shared_ptr<Executor> chosen = CurrentExecutor();
    Executor& executor = chosen ? *chosen : DefaultExecutor();
    cpu::ForEachChunk(executor, cpu::SplitEvenly(executor, n, kGrain, kChunksPerWorker), read_some);
  }

  // From here on other threads may run, whenever Python code does.
  for (PyObject* const owner : std::span(places.owners, count * (1 + levels))) {
    if (owner != nullptr) keep.Add(nb::borrow(owner));
  }
  for (size_t i = 0; i < count; ++i) {
    if (left[i]) read.left.push_back(i);
  }
  return read;
}

}  // namespace raggrad::python
