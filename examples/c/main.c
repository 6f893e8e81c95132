// main.cc, in C. Computes on the GPU if there is one.
#include <raggrad/capi/raggrad_c.h>
#include <stdio.h>
#include <stdlib.h>

static char text[256];
static rg_error error = {sizeof error, text, sizeof text};

static void require(rg_status status) {
  if (status == RG_OK) return;
  fprintf(stderr, "%s\n", text);
  exit(1);
}

// Copies an array to a device, or back to host memory.
static rg_output copy(const rg_tensor* from, int32_t device_kind) {
  rg_output output = RG_INIT(rg_output);
  require(rg_copy_tensor(NULL, from, device_kind, 0, &output, &error));
  return output;
}

static rg_output copy_back(const rg_output* output) {
  const rg_tensor view = rg_output_view(output);
  return copy(&view, RG_CPU);
}

int main(void) {
  if (rg_abi_version() != RG_ABI_VERSION) {
    fprintf(stderr, "this program was compiled for another raggrad\n");
    return 1;
  }
  static const float grad_data[] = {1, 2, 3, 4};
  static const int32_t index_data[] = {7, 2, 7}, bag_data[] = {0, 0, 1}, table_rows = 1000000;
  static const int64_t bags_by_columns[] = {2, 2}, three[] = {3};
  const rg_tensor arrays[] = {
      {sizeof(rg_tensor), grad_data, RG_FLOAT32, RG_CPU, 0, 2, bags_by_columns},
      {sizeof(rg_tensor), index_data, RG_INT32, RG_CPU, 0, 1, three},
      {sizeof(rg_tensor), bag_data, RG_INT32, RG_CPU, 0, 1, three},
  };
  const rg_tensor dim0 = {sizeof dim0, &table_rows, RG_INT32, RG_CPU, 0, 0, NULL};  // always in host memory

  const int32_t device = rg_cuda_status(NULL) == RG_OK ? RG_CUDA : RG_CPU;
  rg_output operands[3];
  rg_tensor views[3];
  for (int i = 0; i < 3; ++i) {
    operands[i] = copy(&arrays[i], device);
    views[i] = rg_output_view(&operands[i]);
  }
  rg_output device_rows = RG_INIT(rg_output), device_unique = RG_INIT(rg_output);
  require(rg_sparse_segment_grad_v2(NULL, RG_MEAN, &views[0], &views[1], &views[2], &dim0, &device_rows, &device_unique,
                                    &error));
  rg_output rows = copy_back(&device_rows), unique = copy_back(&device_unique);
  for (int64_t i = 0; i < unique.shape[0]; ++i) {
    const float* row = (const float*)rows.data + 2 * i;
    printf("row %d: %.1f %.1f\n", ((const int32_t*)unique.data)[i], row[0], row[1]);
  }
  rg_output* const all[] = {&operands[0], &operands[1], &operands[2], &device_rows, &device_unique, &rows, &unique};
  for (int i = 0; i < 7; ++i) rg_output_free(NULL, all[i]);
  return 0;
}
