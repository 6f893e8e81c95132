// The element types, and the one way to get from a run-time DType to a C++ type.
//
//   Visit(FloatTypes{}, grad.dtype, [&]<class T>() -> Status { ... T ... });
//
// Values and names are TensorFlow's. Types that only exist to be refused by name (float8, int4, ...) have no C++ type.
#pragma once

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "raggrad/core/status.h"

#pragma GCC visibility push(default)
namespace raggrad {

enum class DType : int32_t {
  kInvalid = 0,
  kFloat32 = 1,
  kFloat64 = 2,
  kInt32 = 3,
  kUInt8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kString = 7,
  kComplex64 = 8,
  kInt64 = 9,
  kBool = 10,
  kQInt8 = 11,
  kQUInt8 = 12,
  kQInt32 = 13,
  kBFloat16 = 14,
  kQInt16 = 15,
  kQUInt16 = 16,
  kUInt16 = 17,
  kComplex128 = 18,
  kHalf = 19,
  kUInt32 = 22,
  kUInt64 = 23,
  kFloat8E5M2 = 24,
  kFloat8E4M3FN = 25,
  kFloat8E4M3FNUZ = 26,
  kFloat8E4M3B11FNUZ = 27,
  kFloat8E5M2FNUZ = 28,
  kInt4 = 29,
  kUInt4 = 30,
  kInt2 = 31,
  kUInt2 = 32,
  kFloat4E2M1FN = 33,
};

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
struct QInt8 {
  int8_t value;
};
struct QUInt8 {
  uint8_t value;
};
struct QInt16 {
  int16_t value;
};
struct QUInt16 {
  uint16_t value;
};
struct QInt32 {
  int32_t value;
};

// One element of a string tensor; it does not own its bytes. In a Tensor that an operator made, they lie in the
// tensor's allocation, behind the elements, so that nothing has to be destroyed one by one.
struct String {
  const char* data;
  size_t size;
};

template <class... Ts>
struct TypeList {};

// The one list of element types. Everything below is derived from it.
template <class T, DType D>
struct Element {
  using type = T;
  static constexpr DType kDType = D;
};
using Elements =
    TypeList<Element<Half, DType::kHalf>, Element<BFloat16, DType::kBFloat16>, Element<float, DType::kFloat32>,
             Element<double, DType::kFloat64>, Element<int8_t, DType::kInt8>, Element<int16_t, DType::kInt16>,
             Element<int32_t, DType::kInt32>, Element<int64_t, DType::kInt64>, Element<uint8_t, DType::kUInt8>,
             Element<uint16_t, DType::kUInt16>, Element<uint32_t, DType::kUInt32>, Element<uint64_t, DType::kUInt64>,
             Element<std::complex<float>, DType::kComplex64>, Element<std::complex<double>, DType::kComplex128>,
             Element<bool, DType::kBool>, Element<String, DType::kString>, Element<QInt8, DType::kQInt8>,
             Element<QUInt8, DType::kQUInt8>, Element<QInt16, DType::kQInt16>, Element<QUInt16, DType::kQUInt16>,
             Element<QInt32, DType::kQInt32>>;

namespace dtype_internal {
template <class T, class... E>
consteval DType Find(TypeList<E...>) {
  DType found = DType::kInvalid;
  ((std::is_same_v<T, typename E::type> ? void(found = E::kDType) : void()), ...);
  return found;
}
template <class... A, class... B>
TypeList<A..., B...> Join(TypeList<A...>, TypeList<B...>);
template <class... E>
consteval auto Alignments(TypeList<E...>) {
  std::array<uint8_t, 64> by_number;
  by_number.fill(1);
  ((by_number[static_cast<size_t>(E::kDType)] = alignof(typename E::type)), ...);
  return by_number;
}
inline constexpr auto kAlignments = Alignments(Elements{});
}  // namespace dtype_internal

template <class T>
inline constexpr DType kDTypeOf = dtype_internal::Find<T>(Elements{});

template <class A, class B>
using JoinLists = decltype(dtype_internal::Join(A{}, B{}));

// The roles that operators' signatures name.
using IndexTypes = TypeList<int32_t, int64_t>;
using FloatTypes = TypeList<Half, BFloat16, float, double>;
using NumberTypes = JoinLists<FloatTypes, TypeList<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t,
                                                   uint64_t, std::complex<float>, std::complex<double>>>;
using RaggedTypes = JoinLists<NumberTypes, TypeList<bool, String, QInt8, QUInt8, QInt16, QUInt16, QInt32>>;

// "float32", "half", "qint8", ...; "invalid" for kInvalid and values that are no dtype.
std::string_view DTypeName(DType dtype) noexcept;
// The inverse of DTypeName; kInvalid if there is no such name. "float16" is accepted for "half".
DType DTypeFromName(std::string_view name) noexcept;
// Bytes per element in memory; 0 for kInvalid.
size_t DTypeSize(DType dtype) noexcept;
// Alignment of an element in bytes; 1 for types without a C++ type and values that are no dtype.
inline size_t DTypeAlignment(DType dtype) noexcept {
  const auto number = static_cast<size_t>(dtype);
  return number < dtype_internal::kAlignments.size() ? dtype_internal::kAlignments[number] : 1;
}

template <class... Ts>
constexpr bool Contains(TypeList<Ts...>, DType dtype) noexcept {
  return ((kDTypeOf<Ts> == dtype) || ...);
}

// "half, bfloat16, float32, float64"
template <class... Ts>
std::string Names(TypeList<Ts...>) {
  std::string names;
  ((names.append(names.empty() ? "" : ", ").append(DTypeName(kDTypeOf<Ts>))), ...);
  return names;
}

// Calls f.operator()<T>() for the T of the list whose dtype is `dtype`. Operators check dtypes before they visit, so
// the INTERNAL error at the end means a forgotten check.
template <class T, class... Rest, class F>
auto Visit(TypeList<T, Rest...>, DType dtype, F&& f) -> decltype(f.template operator()<T>()) {
  if (dtype == kDTypeOf<T>) return f.template operator()<T>();
  if constexpr (sizeof...(Rest) > 0) {
    return Visit(TypeList<Rest...>{}, dtype, f);
  } else {
    return Status(Code::kInternal, "dtype not in the visited list");
  }
}

}  // namespace raggrad
#pragma GCC visibility pop
