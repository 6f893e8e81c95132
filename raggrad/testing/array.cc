#include "raggrad/testing/array.h"

#include "raggrad/testing/same_bits.h"

namespace raggrad::testing {

::testing::AssertionResult HoldsBits(const TensorView& got, const TensorView& want) {
  if (got.dtype != want.dtype) return ::testing::AssertionFailure() << "dtype is " << DTypeName(got.dtype);
  if (!(got.shape == want.shape)) {
    auto failure = ::testing::AssertionFailure() << "shape is [";
    for (const int64_t dim : got.shape.dims()) failure << " " << dim;
    return failure << " ]";
  }
  const int64_t size = want.shape.NumElements().value_or(0);
  auto result = ::testing::AssertionSuccess();
  const Status visited = Visit(NumberTypes{}, want.dtype, [&]<class T>() -> Status {
    const T *const a = got.As<T>(), *const b = want.As<T>();
    int64_t i = 0;
    while (i < size && SameBits(a[i], b[i])) ++i;
    if (i < size) {
      result = ::testing::AssertionFailure() << "element " << i << " is " << ::testing::PrintToString(a[i])
                                             << ", expected " << ::testing::PrintToString(b[i]);
    }
    return {};
  });
  return visited.ok() ? result : ::testing::AssertionFailure() << "cannot compare " << DTypeName(want.dtype);
}

}  // namespace raggrad::testing
