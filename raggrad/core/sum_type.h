// SumType<T>: the type in which values of type T are summed, on every device.
#pragma once

#include <type_traits>

#include "raggrad/core/dtype.h"

namespace raggrad {

template <class T>
inline constexpr bool kIsShortFloat = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

template <class T>
using SumType = std::conditional_t<kIsShortFloat<T>, float, T>;

}  // namespace raggrad
