// Equality of elements by their bits.
#pragma once

#include <complex>
#include <cstring>
#include <type_traits>

#include "raggrad/core/dtype.h"

namespace raggrad::testing {

template <class T>
bool IsNan(const T& value) noexcept {
  if constexpr (std::is_same_v<T, Half>) {
    return (value.bits & 0x7fff) > 0x7c00;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return (value.bits & 0x7fff) > 0x7f80;
  } else if constexpr (std::is_floating_point_v<T>) {
    return value != value;
  } else {
    return false;
  }
}

// Equal bits, or both NaN: the sign and payload of a NaN made by arithmetic are the machine's choice.
template <class T>
bool SameBits(const T& a, const T& b) noexcept {
  if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
    return SameBits(a.real(), b.real()) && SameBits(a.imag(), b.imag());
  } else if constexpr (std::is_same_v<T, String>) {
    return a.size == b.size && (a.size == 0 || std::memcmp(a.data, b.data, a.size) == 0);
  } else {
    return std::memcmp(&a, &b, sizeof(T)) == 0 || (IsNan(a) && IsNan(b));
  }
}

}  // namespace raggrad::testing
