// Compiles the code of raggrad/capi/README.md, which is parts of a function.
#include "raggrad/capi/raggrad_c.h"

void* arena_allocate(void* user, size_t bytes, const rg_output_spec* output);
void arena_deallocate(void* user, void* pointer, size_t bytes);
rg_context use(const rg_tensor** splits, rg_output** levels, const rg_tensor* grad, const rg_tensor* table_rows);
rg_context compile_blocks(rg_tensor outer, rg_tensor inner, rg_output level0, rg_output level1, const float* data,
                          int32_t rows, int my_arena);

rg_context compile_blocks(rg_tensor outer, rg_tensor inner, rg_output level0, rg_output level1, const float* data,
                          int32_t rows, int my_arena) {
#include "capi_blocks.inc"
  use(splits, levels, &grad, &table_rows);
  return context;
}
