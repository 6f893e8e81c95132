// Texts of operators' errors. Internal to the library.
//
//   return InvalidArgument(op, "Index ", v, " out of range [0, ", rows, ").", " [indices[", i, "]]");
//
// A message is "<operator>: <TensorFlow's text> [<argument>: expected ..., got ...]". TensorFlow's text is in it so
// that code which looks for it keeps working; the bracket says what TensorFlow leaves out.
#pragma once

#include <charconv>
#include <concepts>
#include <new>
#include <string>
#include <string_view>

#include "raggrad/core/device.h"
#include "raggrad/core/dtype.h"
#include "raggrad/core/result.h"
#include "raggrad/core/shape.h"
#include "raggrad/core/status.h"

namespace raggrad {

inline void AppendText(std::string& text, std::string_view part) { text.append(part); }
inline void AppendText(std::string& text, DType dtype) { text.append(DTypeName(dtype)); }
template <std::integral I>
void AppendText(std::string& text, I value) {
  char digits[24];
  text.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}
inline void AppendText(std::string& text, Device device) {
  if (device.is_cpu()) return AppendText(text, std::string_view("host memory"));
  if (device.is_cuda()) {
    text.append("cuda:");
  } else {
    text.append("DLPack device type ");
    AppendText(text, static_cast<int32_t>(device.kind));
    text.append(", number ");
  }
  AppendText(text, device.number);
}
inline void AppendText(std::string& text, const Shape& shape) {
  text.push_back('[');
  for (int i = 0; i < shape.rank(); ++i) {
    if (i > 0) text.push_back(',');
    AppendText(text, shape[i]);
  }
  text.push_back(']');
}

template <class... Parts>
Status MakeError(Code code, const Parts&... parts) noexcept {
  try {
    std::string text;
    (AppendText(text, parts), ...);
    return {code, text};
  } catch (const std::bad_alloc&) {
    return {code, {}};
  }
}

// The text of a message without the operator in front, which users of doors know by another name.
inline std::string_view TextWithoutOperator(std::string_view message) noexcept {
  const size_t colon = message.find(": ");
  const bool named = colon != message.npos && message.substr(0, colon).find_first_of(" []") == message.npos;
  return named ? message.substr(colon + 2) : message;
}

// The error without that name, for an operator that called another one and has a name of its own.
inline Status WithoutOperator(const Status& error) noexcept {
  return MakeError(error.code(), TextWithoutOperator(error.message()));
}

inline const Status& StatusOf(const Status& status) noexcept { return status; }
template <class T>
const Status& StatusOf(const Result<T>& result) noexcept {
  return result.status();
}

template <class... Parts>
Status InvalidArgument(std::string_view op, const Parts&... parts) noexcept {
  return MakeError(Code::kInvalidArgument, op, ": ", parts...);
}

// Puts the operator's name in front of the error, unless it is there already.
inline Status Named(std::string_view op, const Status& error) noexcept {
  if (error.message().starts_with(op)) return error;
  return MakeError(error.code(), op, ": ", error.message());
}

// Calls f() and names the operator in its error: shared code (memory, CUDA) does not know it. Success costs nothing
// extra.
template <class F>
auto WithOp(std::string_view op, const F& f) noexcept -> decltype(f()) {
  auto result = f();
  if (result.ok()) return result;
  result = Named(op, StatusOf(result));
  return result;
}

template <class... Ts>
Status CheckDType(std::string_view op, std::string_view argument, DType got, TypeList<Ts...> allowed) noexcept {
  if (Contains(allowed, got)) return {};
  try {
    return InvalidArgument(op, argument, " has dtype ", got, ", which this operator does not have. [", argument,
                           ": expected one of ", Names(allowed), "; got ", got, "]");
  } catch (const std::bad_alloc&) {
    return {Code::kInvalidArgument, {}};
  }
}

}  // namespace raggrad
