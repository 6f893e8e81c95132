// UnbatchGrad with pieces in device memory. They are joined on the owner's stream, whichever call comes last.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <future>
#include <memory>
#include <vector>

#include "raggrad/ops/batching/batching.h"
#include "raggrad/ops/batching/test/test_calls.h"
#include "raggrad/testing/cuda_stream.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/on_device.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

using ::testing::HasSubstr;

class UnbatchGradCudaTest : public GpuTest {
 protected:
  // The piece of a call, with or without a keep-alive.
  SharedView OnGpu(const Tensor& host, bool keep_alive) {
    auto piece = std::make_shared<OnDevice>(host.view());
    const TensorView view = piece->view();
    if (keep_alive) return {view, piece};
    pieces_.push_back(std::move(piece));
    return {view};
  }

  UnbatchGradCall Call(int64_t id, const std::shared_ptr<const Tensor>& index, SharedView grad, void* stream) {
    const TensorView original = TensorView::Of<float>(nullptr, Shape{index ? 1 : 0, 2});
    TensorView like = original;
    like.dtype = grad.view.dtype;
    ids_.push_back(id);
    return {.resource = {"", "gpu"},
            .original_input = like,
            .batch_index = index ? index->view() : TensorView::Of<int64_t>(nullptr, Shape{0, 3}),
            .grad = std::move(grad),
            .id = TensorView::Scalar(ids_.back()),
            .stream = stream};
  }

  BatchingRuntime runtime_;

 private:
  std::vector<std::shared_ptr<OnDevice>> pieces_;
  std::deque<int64_t> ids_;
};

TEST_F(UnbatchGradCudaTest, JoinsPiecesInEveryOrderOfArrival) {
  Generator random(1);
  const CudaStream stream;
  void* const streams[] = {nullptr, stream.handle()};
  for (int owner_turn = 0; owner_turn < 4; ++owner_turn) {
    for (const bool keep_alive : {false, true}) {
      std::vector<Tensor> host;
      std::vector<TensorView> views;
      std::vector<int64_t> keys, rows;
      for (int64_t key = 0; key < 4; ++key) {
        const int64_t count = 3 + 1'000 * key;
        host.push_back(TensorOf(random.Values<float>(count * 2), Shape{count, 2}));
        keys.push_back(key);
        rows.push_back(count);
      }
      for (const Tensor& tensor : host) views.push_back(tensor.view());
      const auto index = Index(keys, rows);
      std::vector<std::future<Result<Tensor>>> results;
      for (int64_t key = 0; key < 4; ++key) {
        const bool owner = key == owner_turn;
        const UnbatchGradCall call =
            Call(key, owner ? index : nullptr, OnGpu(host[static_cast<size_t>(key)], keep_alive), streams[key % 2]);
        results.push_back(runtime_.UnbatchGradFuture(call));
      }
      for (int key = 0; key < 4; ++key) {
        const Result<Tensor> got = results[static_cast<size_t>(key)].get();
        ASSERT_THAT(got, IsOk());
        if (key == owner_turn) {
          ExpectSame(got->view(), JoinedByHand(views[0], views).view(), CudaStream::ContextOf(streams[key % 2]));
        } else {
          EXPECT_EQ(got->view().device, Device::Cuda());
          EXPECT_EQ(got->shape(), (Shape{0, 2}));
        }
      }
    }
  }
}

TEST_F(UnbatchGradCudaTest, JoinsEveryType) {
  for (const DType dtype : {DType::kHalf, DType::kFloat64, DType::kInt8, DType::kBool, DType::kComplex128}) {
    const Tensor piece = TensorOfBytes(dtype, Shape{3, 1}, std::string(3 * DTypeSize(dtype), '\1'));
    const Result<Tensor> got = runtime_.UnbatchGrad(Call(7, Index({7}, {3}), OnGpu(piece, true), nullptr));
    ASSERT_THAT(got, IsOk());
    ExpectSame(got->view(), piece.view());
  }
}

TEST_F(UnbatchGradCudaTest, TheStreamIsTheSameInEveryThread) {
  const Tensor piece = TensorOf(std::vector<float>{1, 2}, Shape{1, 2});
  EXPECT_THAT(runtime_.UnbatchGrad(Call(1, Index({1}, {1}), OnGpu(piece, true), kStreamPerThread)),
              StatusIs(Code::kInvalidArgument, HasSubstr("got cudaStreamPerThread")));
}

TEST_F(UnbatchGradCudaTest, PiecesOfOneBatchAreOnOneDevice) {
  const Tensor piece = TensorOf(std::vector<float>{1, 2}, Shape{1, 2});
  const auto first = runtime_.UnbatchGrad(Call(1, nullptr, {piece.view()}, nullptr));
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(runtime_.UnbatchGrad(Call(2, Index({1, 2}, {1, 1}), OnGpu(piece, true), nullptr)),
              StatusIs(Code::kInvalidArgument, HasSubstr("pieces are on different devices")));
}

}  // namespace
}  // namespace raggrad::testing
