// For tests of padded forms on a GPU (ops/padded.h): compares them with the CPU's, and shows that they never wait.
//
//   ExpectSamePadded(SparseSlicePadded(device operands), SparseSlicePadded(host operands), &Output::output_values,
//   ...);
#pragma once

#include <gtest/gtest.h>

#include "raggrad/ops/padded.h"
#include "raggrad/testing/cuda_stream.h"
#include "raggrad/testing/on_device.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {

// Expects the tensors, the report and the count of `want`. Where the CPU found a fault in the data, or too little room,
// the call on the GPU has succeeded, and CheckPadded has the CPU's error. The work on ctx.stream need not be done yet.
template <class T, class... Fields>
void ExpectSamePadded(const Result<T>& got, const Result<T>& want, const Context& ctx, Fields... fields) {
  ASSERT_THAT(got, IsOk());
  const Result<int64_t> count = CheckPadded(*got, ctx);
  if (!want.ok()) {
    EXPECT_EQ(count.status().code(), want.status().code());
    EXPECT_EQ(count.status().message(), want.status().message());
    return;
  }
  ASSERT_THAT(count, IsOk());
  EXPECT_EQ(*count, *CheckPadded(*want));
  const auto expect = [&](Tensor T::*field) { ExpectSame(((*got).*field).view(), ((*want).*field).view(), ctx); };
  (expect(fields), ...);
  expect(&T::report);
}

// Runs call(ctx) on a stream that is blocked. Expects it to return before the stream goes on, and the results of
// `want` after that.
template <class F, class T, class... Fields>
void ExpectNoWait(const F& call, const Result<T>& want, Fields... fields) {
  ASSERT_THAT(call(Context{}), IsOk());  // the first call loads kernels, for which CUDA waits for all streams
  BlockedStream stream;
  const Context ctx = stream.MakeContext();
  const Result<T> got = call(ctx);
  EXPECT_TRUE(stream.blocked()) << "the call has waited for its stream";
  stream.Release();
  ExpectSamePadded(got, want, ctx, fields...);
}

}  // namespace raggrad::testing
