// The library's type lists for GoogleTest: TYPED_TEST_SUITE(MyTest, GtestTypes<NumberTypes>);
#pragma once

#include <gtest/gtest.h>

#include <complex>
#include <type_traits>

#include "raggrad/core/dtype.h"

namespace raggrad::testing {

namespace gtest_types_internal {
template <class... Ts>
::testing::Types<Ts...> Convert(TypeList<Ts...>);

// Sanitizers look at memory and at arithmetic. Integers of the smallest and of the largest size show them what all the
// others do, and half of the types take half of the time to compile. Other builds test every type.
#if defined(RAGGRAD_SANITIZED)
template <class T, class... Kept>
constexpr bool kIsOneOf = (std::is_same_v<T, Kept> || ...);
template <class T>
constexpr bool kTested = kIsOneOf<T, Half, BFloat16, float, double, int8_t, int64_t, std::complex<double>, String>;
#else
template <class T>
constexpr bool kTested = true;
#endif

template <class... A, class... B>
TypeList<A..., B...> operator+(TypeList<A...>, TypeList<B...>);

template <class... Ts>
auto Tested(TypeList<Ts...>)
    -> decltype((TypeList<>{} + ... + std::conditional_t<kTested<Ts>, TypeList<Ts>, TypeList<>>{}));
}  // namespace gtest_types_internal

template <class List>
using GtestTypes = decltype(gtest_types_internal::Convert(gtest_types_internal::Tested(List{})));

}  // namespace raggrad::testing
