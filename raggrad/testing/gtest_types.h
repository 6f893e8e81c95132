// The library's type lists for GoogleTest.
//
//   class MyTest : public ::testing::TestWithParam<DType> {};
//   INSTANTIATE_TEST_SUITE_P(Each, MyTest, EachDType(NumberTypes{}), NameOfDType);
//
// compiles each test once. Tests whose own code needs the C++ type are compiled for every type:
//
//   TYPED_TEST_SUITE(MyTest, GtestTypes<NumberTypes>);
#pragma once

#include <gtest/gtest.h>

#include <complex>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include "raggrad/core/dtype.h"

namespace raggrad {

// Found by GoogleTest.
inline void PrintTo(DType dtype, std::ostream* out) { *out << DTypeName(dtype); }

}  // namespace raggrad

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

template <class... Ts>
std::vector<DType> DTypes(TypeList<Ts...>) {
  return {kDTypeOf<Ts>...};
}
}  // namespace gtest_types_internal

template <class List>
using GtestTypes = decltype(gtest_types_internal::Convert(gtest_types_internal::Tested(List{})));

template <class List>
auto EachDType(List list) {
  return ::testing::ValuesIn(gtest_types_internal::DTypes(decltype(gtest_types_internal::Tested(list)){}));
}
inline std::string NameOfDType(const ::testing::TestParamInfo<DType>& test) {
  return std::string(DTypeName(test.param));
}

}  // namespace raggrad::testing
