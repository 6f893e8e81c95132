// For tests that need a GPU: copies operands to the device, brings results back and compares them with the CPU's.
//
//   using SliceCudaTest = testing::GpuTest;                     // skipped, with the reason, where there is no GPU
//   const OnDevice grad(host_grad);                             // a TensorView like any other
//   ExpectSame(SparseSliceGrad(grad, ...), SparseSliceGrad(host_grad, ...));
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "raggrad/core/context.h"
#include "raggrad/core/result.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/cpu/convert.h"
#include "raggrad/cuda/cuda.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/owned.h"

namespace raggrad::testing {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const Status status = CudaStatus(); !status.ok()) GTEST_SKIP() << status.message();
  }
};

// A copy of an operand in device memory; the test fails if it cannot be made.
class OnDevice {
 public:
  explicit OnDevice(const TensorView& host, const Context& ctx = {}) {
    Result<Tensor> copy = CopyTensor(host, Device::Cuda(), ctx);
    if (copy.ok()) {
      tensor_ = *std::move(copy);
    } else {
      ADD_FAILURE() << copy.status().message();
    }
  }

  const TensorView& view() const noexcept { return tensor_.view(); }
  operator const TensorView&() const noexcept { return view(); }  // NOLINT: implicit, to be passed as an argument
  Tensor& tensor() noexcept { return tensor_; }

 private:
  Tensor tensor_;
};

// A copy in host memory of a tensor from anywhere.
inline Tensor OnHost(const TensorView& from, const Context& ctx = {}) {
  Result<Tensor> copy = CopyTensor(from, Device::Cpu(), ctx);
  if (copy.ok()) return *std::move(copy);
  ADD_FAILURE() << copy.status().message();
  return {};
}

// Expects `got`, in device memory, to have dtype, shape and every bit of `want`, in host memory. NaNs are equal.
inline void ExpectSame(const TensorView& got, const TensorView& want, const Context& ctx = {}) {
  EXPECT_EQ(got.device, Device::Cuda());
  EXPECT_EQ(Difference(OnHost(got, ctx).view(), want), "");
}

// Expects that both calls succeeded, or failed with the same code and text. Returns whether they succeeded.
template <class T>
bool ExpectSameStatus(const Result<T>& got, const Result<T>& want) {
  EXPECT_EQ(got.status().code(), want.status().code());
  EXPECT_EQ(got.status().message(), want.status().message());
  return got.ok() && want.ok();
}

// Expects the same tensor, or the same error.
inline void ExpectSame(const Result<Tensor>& got, const Result<Tensor>& want) {
  if (ExpectSameStatus(got, want)) ExpectSame(got->view(), want->view());
}

// The same for these tensors of a result:
//   ExpectSame(got, want, &SparseSegmentGradV2Output::output, &SparseSegmentGradV2Output::sorted_unique_indices);
template <class T, class... Fields>
void ExpectSame(const Result<T>& got, const Result<T>& want, Tensor T::*first, Fields... others) {
  if (!ExpectSameStatus(got, want)) return;
  const auto expect = [&](Tensor T::*field) { ExpectSame(((*got).*field).view(), ((*want).*field).view()); };
  expect(first);
  (expect(others), ...);
}

// Calls call(ctx) -> Status with device memory that runs out at request 0, 1, 2, ... (counting_allocator.h).
inline void ExpectEveryDeviceAllocationFailureIsReported(FunctionRef<Status(const Context&)> call) {
  const Result<Allocator*> pool = CudaPool(Device::Cuda(), nullptr);
  ASSERT_TRUE(pool.ok()) << pool.status().message();
  ExpectEveryAllocationFailureIsReported({}, call, **pool, &Context::device_allocator);
}

template <class T>
double AsDouble(T value) {
  if constexpr (kIsShortFloat<T>) {
    return static_cast<double>(cpu::BaselineConvert::Widen(value));
  } else {
    return static_cast<double>(value);
  }
}

// Expects every element of `got`, in device memory, to be within relative * |want| + absolute of `want`, in host
// memory; a sum that may cancel needs `absolute`. Infinities and NaNs must be the same. For FloatTypes.
inline void ExpectClose(const TensorView& got, const TensorView& want, double relative, double absolute = 0,
                        const Context& ctx = {}) {
  EXPECT_EQ(got.device, Device::Cuda());
  ASSERT_EQ(got.dtype, want.dtype);
  ASSERT_TRUE(got.shape == want.shape);
  const Tensor host = OnHost(got, ctx);
  const Status visited = Visit(FloatTypes{}, want.dtype, [&]<class T>() -> Status {
    const int64_t size = want.shape.NumElements().value_or(0);
    for (int64_t i = 0; i < size; ++i) {
      const double a = AsDouble(host.As<T>()[i]), b = AsDouble(want.As<T>()[i]);
      const bool close = std::isfinite(b) ? std::abs(a - b) <= relative * std::abs(b) + absolute
                                          : a == b || (std::isnan(a) && std::isnan(b));
      if (!close)
        return Status(Code::kInternal,
                      "element " + std::to_string(i) + " is " + std::to_string(a) + ", expected " + std::to_string(b));
    }
    return {};
  });
  EXPECT_TRUE(visited.ok()) << visited.message();
}

}  // namespace raggrad::testing
