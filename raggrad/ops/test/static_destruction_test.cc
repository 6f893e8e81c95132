// Calls the library while static objects are destroyed. A static object of the program, made before anything of the
// library and so destroyed after it, calls every family with every executor and must get the results that main() got.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "raggrad/raggrad.h"

namespace {

using raggrad::BatchingRuntime;
using raggrad::Context;
using raggrad::Executor;
using raggrad::Result;
using raggrad::SegmentCombiner;
using raggrad::Shape;
using raggrad::Tensor;
using raggrad::TensorView;

std::string Text(const raggrad::Status& status) { return std::string(status.message()); }
std::string Text(const Tensor& tensor) { return {static_cast<const char*>(tensor.view().data), tensor.bytes()}; }

// The bytes of the tensors that of() picks from the result, or the error.
template <class T, class Of>
std::string Text(const Result<T>& result, const Of& of) {
  return result.ok() ? of(*result) : Text(result.status());
}
std::string Text(const Result<Tensor>& result) {
  return Text(result, [](const Tensor& tensor) { return Text(tensor); });
}

std::vector<std::string> CallEveryFamily(const Context& ctx) {
  const std::vector<float> table(40'000, 1.5F), grad(20'000, 2.5F);
  std::vector<int32_t> indices(10'000), segments(10'000);
  for (int32_t i = 0; i < 10'000; ++i) indices[static_cast<size_t>(i)] = i, segments[static_cast<size_t>(i)] = i / 2;
  const TensorView table_view = TensorView::Of(table.data(), {10'000, 4});
  const TensorView grad_view = TensorView::Of(grad.data(), {5'000, 4});
  const TensorView indices_view = TensorView::Vector<int32_t>(indices);
  const TensorView segments_view = TensorView::Vector<int32_t>(segments);
  std::vector<std::string> texts;
  texts.push_back(Text(SparseSegment(SegmentCombiner::kMean, table_view, indices_view, segments_view, ctx)));
  texts.push_back(
      Text(SparseSegmentGradSlices(SegmentCombiner::kSum, grad_view, indices_view, segments_view, 10'000, ctx),
           [](const raggrad::IndexedSlices& slices) { return Text(slices.values); }));

  const int64_t places[] = {2, 0}, three[] = {3}, four[] = {4}, two[] = {2};
  const float values[] = {5, 7}, one = 1;
  texts.push_back(Text(SparseFillEmptyRows(TensorView::Of(places, {2, 1}), TensorView::Of(values, {2}),
                                           TensorView::Of(three, {1}), TensorView::Scalar(one), ctx),
                       [](const auto& filled) { return Text(filled.output_values); }));
  texts.push_back(Text(SparseSlice(TensorView::Of(places, {2, 1}), TensorView::Of(values, {2}),
                                   TensorView::Of(four, {1}), TensorView::Of(two, {1}), TensorView::Of(two, {1}), ctx),
                       [](const auto& window) { return Text(window.output_values); }));

  const int64_t splits[] = {0, 1, 2};
  const int32_t dense_shape[] = {2};
  const TensorView nested[] = {TensorView::Of(splits, {3})};
  const auto variants = RaggedTensorToVariant(nested, TensorView::Of(values, {2}), /*batched_input=*/true, ctx);
  texts.push_back(
      variants.ok() ? Text(RaggedTensorToVariantGradient(variants->view(), nested[0], TensorView::Of(dense_shape, {1}),
                                                         raggrad::DType::kFloat32, ctx))
                    : Text(variants.status()));

  BatchingRuntime runtime(ctx);
  raggrad::BatchCall call;
  call.in_tensors = {{TensorView::Of(values, {2})}};
  call.max_batch_size = 2;
  texts.push_back(Text(runtime.Batch(call), [](const auto& batch) { return Text(batch.batched_tensors[0]); }));
  texts.push_back(Text(raggrad::CudaStatus()));
  return texts;
}

std::vector<std::vector<std::string>> CallWithEveryExecutor() {
  static Executor* const own = raggrad::MakeThreadPool(3).release();
  std::vector<std::vector<std::string>> texts;
  for (Executor* const executor : {static_cast<Executor*>(nullptr), &raggrad::SerialExecutor(), own}) {
    Context ctx;
    ctx.executor = executor;
    texts.push_back(CallEveryFamily(ctx));
  }
  return texts;
}

struct CallsAtTheEnd {
  ~CallsAtTheEnd() {
    if (CallWithEveryExecutor() == expected) return;
    std::fputs("other results while static objects are destroyed\n", stderr);
    _exit(1);
  }
  std::vector<std::vector<std::string>> expected;
};

CallsAtTheEnd calls_at_the_end;

}  // namespace

// With the argument "fails", RAGGRAD_ISA names no instruction set: the segment operators must say so, even at the end.
int main(int argc, char**) {
  calls_at_the_end.expected = CallWithEveryExecutor();
  const bool says_so = calls_at_the_end.expected[0][0].find("RAGGRAD_ISA") != std::string::npos;
  return says_so == (argc > 1) ? 0 : 2;
}
