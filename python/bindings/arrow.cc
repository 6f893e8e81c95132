// The part of the Arrow C data interface that ragged data needs: structs to Python tuples and back.
// raggrad/ragged/arrow.py knows what they mean.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "operators.h"

namespace raggrad::python {
namespace {

using namespace nb::literals;

// The layouts that the interface prescribes. A struct whose release is null has been released or moved.
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

struct ArrowArrayStream {
  int (*get_schema)(ArrowArrayStream*, ArrowSchema*);
  int (*get_next)(ArrowArrayStream*, ArrowArray*);
  const char* (*get_last_error)(ArrowArrayStream*);
  void (*release)(ArrowArrayStream*);
  void* private_data;
};

constexpr const char* kSchemaName = "arrow_schema";
constexpr const char* kArrayName = "arrow_array";

template <class T>
T* Unwrap(nb::handle capsule, const char* name) {
  auto* const pointer = static_cast<T*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (pointer == nullptr) throw nb::python_error();
  if (pointer->release == nullptr) throw nb::value_error("an Arrow capsule has been used already");
  return pointer;
}

// A capsule that frees the struct, and releases its content unless somebody has taken it.
template <class T>
nb::object Wrap(std::unique_ptr<T> value, const char* name) {
  nb::object capsule = nb::steal(PyCapsule_New(value.get(), name, [](PyObject* self) {
    auto* const pointer = static_cast<T*>(PyCapsule_GetPointer(self, PyCapsule_GetName(self)));
    if (pointer->release != nullptr) pointer->release(pointer);
    delete pointer;
  }));
  if (!capsule.is_valid()) throw nb::python_error();
  static_cast<void>(value.release());  // the capsule owns it now
  return capsule;
}

// (format, whether it has a dictionary, children)
nb::tuple SchemaTuple(const ArrowSchema& schema) {
  nb::list children;
  for (int64_t i = 0; i < schema.n_children; ++i) children.append(SchemaTuple(*schema.children[i]));
  return nb::make_tuple(schema.format, schema.dictionary != nullptr, children);
}

// (length, offset, null_count, addresses of the buffers, children)
nb::tuple ArrayTuple(const ArrowArray& array) {
  nb::list buffers, children;
  for (int64_t i = 0; i < array.n_buffers; ++i) buffers.append(reinterpret_cast<uintptr_t>(array.buffers[i]));
  for (int64_t i = 0; i < array.n_children; ++i) children.append(ArrayTuple(*array.children[i]));
  return nb::make_tuple(array.length, array.offset, array.null_count, buffers, children);
}

// The schema and the chunks of a stream, as capsules.
nb::tuple ReadStream(nb::handle capsule) {
  auto* const stream = Unwrap<ArrowArrayStream>(capsule, "arrow_array_stream");
  const auto check = [&](int code) {
    if (code == 0) return;
    const char* const text = stream->get_last_error(stream);
    throw nb::value_error(text != nullptr ? text : "an Arrow stream failed");
  };
  auto schema = std::make_unique<ArrowSchema>();
  check(stream->get_schema(stream, schema.get()));
  nb::object wrapped_schema = Wrap(std::move(schema), kSchemaName);
  nb::list chunks;
  for (;;) {
    auto chunk = std::make_unique<ArrowArray>();
    check(stream->get_next(stream, chunk.get()));
    if (chunk->release == nullptr) return nb::make_tuple(wrapped_schema, chunks);
    chunks.append(Wrap(std::move(chunk), kArrayName));
  }
}

// The memory behind an exported struct. It owns the children and releases them with itself, unless somebody took them.
struct SchemaParts {
  std::string format;
  std::vector<std::unique_ptr<ArrowSchema>> children;
  std::vector<ArrowSchema*> pointers;
};

struct ArrayParts {
  std::vector<const void*> buffers;
  std::vector<std::unique_ptr<ArrowArray>> children;
  std::vector<ArrowArray*> pointers;
  PyObject* owner;  // of the buffers
};

template <class T>
void ReleaseChildren(T* value) {
  for (int64_t i = 0; i < value->n_children; ++i) {
    if (value->children[i]->release != nullptr) value->children[i]->release(value->children[i]);
  }
}

void ReleaseSchema(ArrowSchema* schema) {
  ReleaseChildren(schema);
  delete static_cast<SchemaParts*>(schema->private_data);
  schema->release = nullptr;
}

// May be called from any thread, even after the interpreter has ended; then the memory of its objects is left alone.
void ReleaseArray(ArrowArray* array) {
  ReleaseChildren(array);
  const std::unique_ptr<ArrayParts> parts(static_cast<ArrayParts*>(array->private_data));
  array->release = nullptr;
  if (!Py_IsInitialized()) return;
  const nb::gil_scoped_acquire gil;
  Py_DECREF(parts->owner);
}

template <class Parts, class T>
void Finish(T& value, std::unique_ptr<Parts> parts, void (*release)(T*)) {
  for (const auto& child : parts->children) parts->pointers.push_back(child.get());
  value.n_children = static_cast<int64_t>(parts->children.size());
  value.children = parts->pointers.data();
  value.private_data = parts.release();
  value.release = release;
}

// `node`: (format, length, addresses of the buffers, child nodes).
std::unique_ptr<ArrowSchema> ExportSchema(const nb::tuple& node, const char* name) {
  auto schema = std::make_unique<ArrowSchema>();
  auto parts = std::make_unique<SchemaParts>();
  parts->format = nb::cast<std::string>(node[0]);
  for (const nb::handle child : nb::cast<nb::list>(node[3])) {
    parts->children.push_back(ExportSchema(nb::cast<nb::tuple>(child), "item"));  // Arrow's name for list values
  }
  schema->format = parts->format.c_str();
  schema->name = name;
  schema->flags = 2;  // nullable, as other packages export by default
  Finish(*schema, std::move(parts), &ReleaseSchema);
  return schema;
}

std::unique_ptr<ArrowArray> ExportArray(const nb::tuple& node, nb::handle owner) {
  auto array = std::make_unique<ArrowArray>();
  auto parts = std::make_unique<ArrayParts>();
  array->length = nb::cast<int64_t>(node[1]);
  for (const nb::handle address : nb::cast<nb::list>(node[2])) {
    parts->buffers.push_back(reinterpret_cast<const void*>(nb::cast<uintptr_t>(address)));
  }
  for (const nb::handle child : nb::cast<nb::list>(node[3])) {
    parts->children.push_back(ExportArray(nb::cast<nb::tuple>(child), owner));
  }
  array->n_buffers = static_cast<int64_t>(parts->buffers.size());
  array->buffers = parts->buffers.data();
  parts->owner = owner.inc_ref().ptr();
  Finish(*array, std::move(parts), &ReleaseArray);
  return array;
}

}  // namespace

void DefineArrow(nb::module_& module) {
  module.def(
      "arrow_describe_schema", [](nb::handle schema) { return SchemaTuple(*Unwrap<ArrowSchema>(schema, kSchemaName)); },
      "schema"_a);
  module.def(
      "arrow_describe_array", [](nb::handle array) { return ArrayTuple(*Unwrap<ArrowArray>(array, kArrayName)); },
      "array"_a);
  module.def("arrow_read_stream", &ReadStream, "stream"_a);
  module.def(
      "arrow_export",
      [](const nb::tuple& node, nb::handle owner) {
        return nb::make_tuple(Wrap(ExportSchema(node, ""), kSchemaName), Wrap(ExportArray(node, owner), kArrayName));
      },
      "node"_a, "owner"_a);
}

}  // namespace raggrad::python
