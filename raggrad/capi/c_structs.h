// Reads the structs of a C program, and checks everything about them that needs no operator. Internal to the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "raggrad/capi/raggrad_c.h"
#include "raggrad/core/context.h"
#include "raggrad/core/list.h"
#include "raggrad/core/ragged.h"

namespace raggrad::capi {

// The place of a fault in the arguments.
struct Place {
  std::string_view argument;
  int64_t element = -1;  // of a variant array
  int64_t item = -1;     // of a list, or of the element's splits; -1: the element's values; kWhole: the element itself

  static constexpr int64_t kWhole = -2;
};
void AppendText(std::string& text, const Place& place);

// The size that T had in the first header of this ABI version. Specialise it when T gets another member.
template <class T>
inline constexpr size_t kFirstSize = sizeof(T);

// Structs from `first` to this size are accepted. A larger size is an uninitialised variable.
inline constexpr size_t kLargestStruct = 4096;

Status CheckStructSize(std::string_view function, const Place& place, const void* given, size_t first) noexcept;
Status ReadStruct(std::string_view function, const Place& place, const void* given, void* known, size_t known_size,
                  size_t first) noexcept;

// Copies the members that both the library and the program know into `known`; the others keep their values. A program
// that was compiled against a newer header may have more members but must not have set them: the library would silently
// ignore them.
template <class T>
Status ReadStruct(std::string_view function, const Place& place, const T* given, T& known) noexcept {
  return ReadStruct(function, place, given, &known, sizeof(T), kFirstSize<T>);
}

// Fills the members that the program knows, and keeps its struct_size.
template <class T>
Status WriteStruct(std::string_view function, const Place& place, T* given, T values) noexcept {
  if (Status s = CheckStructSize(function, place, given, kFirstSize<T>); !s.ok()) return s;
  values.struct_size = given->struct_size;
  __builtin_memcpy(given, &values, values.struct_size < sizeof(T) ? values.struct_size : sizeof(T));
  return {};
}

Result<Device> ReadDevice(std::string_view function, const Place& place, int32_t kind, int32_t number) noexcept;
Result<Shape> ReadShape(std::string_view function, const Place& place, int32_t rank, const int64_t* dims) noexcept;
Result<TensorView> ReadTensor(std::string_view function, const Place& place, const rg_tensor* given) noexcept;

// Hands the memory of a tensor over to the caller.
void Store(Tensor& tensor, rg_output* output) noexcept;

// The C++ views of a variant array's elements.
class ElementViews {
 public:
  enum class Splits { kRead, kIgnored };
  explicit ElementViews(Splits splits) noexcept : with_splits_(splits == Splits::kRead) {}

  Status Read(std::string_view function, std::string_view argument, const rg_variant_array& array,
              const Context& ctx) noexcept;
  std::span<const std::optional<RaggedView>> views() const noexcept { return views_.span(); }

 private:
  // Counts the splits of all elements.
  Result<int64_t> Count(std::string_view function, std::string_view argument, const rg_variant_array& array) noexcept;

  const bool with_splits_;
  List<std::optional<RaggedView>> views_;
  List<TensorView> splits_;  // of all elements
};

}  // namespace raggrad::capi
