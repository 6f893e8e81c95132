// The gradient of a mean-pooled embedding: bag 0 holds rows 7 and 2 of a table of a million rows, bag 1 holds row 7.
#include <raggrad/raggrad.h>

#include <cstdio>
#include <iostream>
using raggrad::TensorView;

int main() {
  const float grad[] = {1, 2, 3, 4};
  const int32_t indices[] = {7, 2, 7}, bags[] = {0, 0, 1}, table_rows = 1'000'000;
  const auto result = raggrad::SparseSegmentMeanGradV2(TensorView::Of(grad, {2, 2}), TensorView::Of(indices, {3}),
                                                       TensorView::Of(bags, {3}), TensorView::Scalar(table_rows));
  if (!result.ok()) {
    std::cerr << result.status().message() << '\n';
    return 1;
  }
  for (int64_t i = 0; i < result->output.shape()[0]; ++i) {
    const float* row = result->output.As<float>() + 2 * i;
    std::printf("row %d: %.1f %.1f\n", result->sorted_unique_indices.As<int32_t>()[i], row[0], row[1]);
  }
}
