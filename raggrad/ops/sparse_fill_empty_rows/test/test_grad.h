// Checks that the gradient's tests share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"
#include "raggrad/ops/sparse_fill_empty_rows/test/reference.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::sparse_fill_empty_rows {

using ::raggrad::testing::Array;

template <class T>
Array<T> Scalar(T value) {
  return {{value}, Shape{}};
}

// Expects the reference's result under every setting, or an error that names the entry where the reference stops.
inline void ExpectAsReference(const std::vector<int64_t>& map, const TensorView& grad) {
  const auto want = reference::Grad(map, grad);
  ::raggrad::testing::ForEachSetting([&](const Context& ctx) {
    const auto got = SparseFillEmptyRowsGrad(Array(map), grad, ctx);
    if (want.bad_position >= 0) {
      EXPECT_THAT(got, ::raggrad::testing::StatusIs(
                           Code::kInvalidArgument,
                           ::testing::HasSubstr("[reverse_index_map[" + std::to_string(want.bad_position) + "]")));
      return;
    }
    ASSERT_THAT(got, ::raggrad::testing::IsOk());
    EXPECT_EQ(::raggrad::testing::Difference(got->d_values.view(), want.d_values.view()), "");
    EXPECT_EQ(::raggrad::testing::Difference(got->d_default_value.view(), want.d_default_value.view()), "");
  });
}

// The same for a map without a bad entry.
inline void ExpectSameAsReference(const std::vector<int64_t>& map, const TensorView& grad) {
  ASSERT_EQ(reference::Grad(map, grad).bad_position, -1);
  ExpectAsReference(map, grad);
}

}  // namespace raggrad::sparse_fill_empty_rows
