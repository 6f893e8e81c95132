// TensorText: a tensor as TensorFlow's messages show it. Internal to the library.
//
//   "Tensor<type: int64 shape: [2,2] values: [0 1][2...]...>"
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "raggrad/core/error_text.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/core/tensor_view.h"
#include "raggrad/cpu/convert.h"
#include "raggrad/cpu/float_environment.h"

namespace raggrad::cpu {

// The name of a type in TensorFlow's messages, which differs from DTypeName for float32 and float64.
inline std::string_view MessageName(DType dtype) noexcept {
  if (dtype == DType::kFloat32) return "float";
  if (dtype == DType::kFloat64) return "double";
  return DTypeName(dtype);
}

// A part of a message: InvalidArgument(op, "got ", TensorText{view}). The tensor must be readable.
struct TensorText {
  const TensorView& view;
};

namespace tensor_text_internal {

inline constexpr int64_t kMostShown = 3;

// The number with 6 digits (float64: 15) if these give the same number when read back, otherwise with 9 (17).
template <class T>
std::string_view Digits(T value, std::span<char> room) noexcept {
  constexpr int kDigits = std::is_same_v<T, float> ? 6 : 15;
  constexpr int kAllDigits = std::is_same_v<T, float> ? 9 : 17;
  if (std::isnan(value)) return "nan";
  if (std::fpclassify(value) == FP_SUBNORMAL) value = std::copysign(T{0}, value);  // TensorFlow flushes them
  char* const begin = room.data();
  const auto print = [&](int count) {
    return std::to_chars(begin, begin + room.size(), value, std::chars_format::general, count).ptr;
  };
  char* end = print(kDigits);
  T back = 0;
  std::from_chars(begin, end, back);
  if (back != value) end = print(kAllDigits);
  return {begin, end};
}

template <class T>
void AppendNumber(std::string& text, const T& value) {
  char room[40];
  text.append(InFloatEnvironment([&] { return Digits(value, room); }));
}

template <class T>
void AppendElement(std::string& text, const T& element) {
  if constexpr (std::is_same_v<T, String>) {
    if (element.data != nullptr) text.append(element.data, element.size);
  } else if constexpr (kIsShortFloat<T>) {
    AppendNumber(text, BaselineConvert::Widen(element));
  } else if constexpr (std::is_floating_point_v<T>) {
    AppendNumber(text, element);
  } else if constexpr (std::is_integral_v<T>) {
    AppendText(text, static_cast<std::conditional_t<std::is_same_v<T, bool>, int, T>>(element));
  } else if constexpr (requires { element.value; } && !std::is_same_v<T, QInt32>) {
    AppendText(text, element.value);
  } else {
    text.push_back('?');  // as TensorFlow does
  }
}

// Appends the elements of dimension `dim` and of those below, until kMostShown have been printed.
template <class T>
void AppendDimension(std::string& text, const TensorView& view, int dim, int64_t& printed) {
  const bool innermost = dim + 1 >= view.rank();
  const int64_t size = view.rank() == 0 ? 1 : view.dim(dim);
  for (int64_t i = 0; i < size; ++i) {
    if (printed == kMostShown) {
      if (innermost && dim > 0) text.append("...");
      return;
    }
    if (!innermost) {
      text.push_back('[');
      AppendDimension<T>(text, view, dim + 1, printed);
      text.push_back(']');
      continue;
    }
    if (i > 0) text.push_back(' ');
    AppendElement(text, view.As<T>()[printed++]);
  }
}

}  // namespace tensor_text_internal

inline void AppendText(std::string& text, const TensorText& tensor) {
  const TensorView& view = tensor.view;
  text.append("Tensor<type: ").append(MessageName(view.dtype)).append(" shape: ");
  raggrad::AppendText(text, view.shape);
  text.append(" values: ");
  const int64_t elements = view.shape.NumElements().value_or(0);
  (void)Visit(RaggedTypes{}, view.dtype, [&]<class T>() -> Status {
    int64_t printed = 0;
    if (elements > 0) tensor_text_internal::AppendDimension<T>(text, view, 0, printed);
    return {};
  });
  if (elements > tensor_text_internal::kMostShown) text.append("...");
  text.push_back('>');
}

}  // namespace raggrad::cpu
