// The library's type lists for GoogleTest: TYPED_TEST_SUITE(MyTest, GtestTypes<NumberTypes>);
#pragma once

#include <gtest/gtest.h>

#include "raggrad/core/dtype.h"

namespace raggrad::testing {

namespace gtest_types_internal {
template <class... Ts>
::testing::Types<Ts...> Convert(TypeList<Ts...>);
}  // namespace gtest_types_internal

template <class List>
using GtestTypes = decltype(gtest_types_internal::Convert(List{}));

}  // namespace raggrad::testing
