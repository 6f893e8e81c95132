// main.cc, in C.
#include <raggrad/capi/raggrad_c.h>
#include <stdio.h>

int main(void) {
  static const float grad_data[] = {1, 2, 3, 4};
  static const int32_t index_data[] = {7, 2, 7}, bag_data[] = {0, 0, 1}, table_rows = 1000000;
  static const int64_t bags_by_columns[] = {2, 2}, three[] = {3};
  const rg_tensor grad = {grad_data, RG_FLOAT32, RG_CPU, 2, bags_by_columns};
  const rg_tensor indices = {index_data, RG_INT32, RG_CPU, 1, three};
  const rg_tensor bags = {bag_data, RG_INT32, RG_CPU, 1, three};
  const rg_tensor dim0 = {&table_rows, RG_INT32, RG_CPU, 0, NULL};

  if (rg_abi_version() != RG_ABI_VERSION) {
    fprintf(stderr, "this program was compiled for another raggrad\n");
    return 1;
  }
  char text[256];
  rg_error error = {text, sizeof text};
  rg_output rows, unique;
  if (rg_sparse_segment_grad_v2(NULL, RG_MEAN, &grad, &indices, &bags, &dim0, &rows, &unique, &error) != RG_OK) {
    fprintf(stderr, "%s\n", text);
    return 1;
  }
  for (int64_t i = 0; i < unique.shape[0]; ++i) {
    const float* row = (const float*)rows.data + 2 * i;
    printf("row %d: %.1f %.1f\n", ((const int32_t*)unique.data)[i], row[0], row[1]);
  }
  rg_output_free(NULL, &rows);
  rg_output_free(NULL, &unique);
  return 0;
}
