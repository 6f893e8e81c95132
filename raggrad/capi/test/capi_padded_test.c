// Padded forms through the C interface: too little room, and reports that are none.
#include "raggrad/capi/test/padded_operators.h"

static void test_room(void) {
  const Gradient g = gradient();
  rg_output out = used_output(), unique = used_output(), report_of = used_output();
  for (int64_t room = -1; room < 2; ++room) {
    const rg_status want = room < 0 ? RG_INVALID_ARGUMENT : RG_RESOURCE_EXHAUSTED;
    CHECK(fails(rg_sparse_segment_grad_v2_padded(NULL, RG_SUM, &g.grad, &g.indices, &g.segment_ids, &g.dim0, room, &out,
                                                 &unique, &report_of, message()),
                want, "max_unique"));
    CHECK(owns_nothing(&out) && owns_nothing(&unique) && owns_nothing(&report_of));
  }
  CHECK(fails(rg_sparse_segment_grad_v2_padded(NULL, RG_SUM, &g.grad, &g.indices, &g.segment_ids, &g.dim0, 2, &out,
                                               &unique, &unique, message()),
              RG_INVALID_ARGUMENT, "an output is given twice [output 2]"));
  CHECK(fails(rg_indexed_slices_coalesce_padded(NULL, NULL, 2, &out, &unique, &report_of, message()),
              RG_INVALID_ARGUMENT, "NULL [slices]"));
}

static void test_reports(void) {
  static const uint64_t words[9] = {1, 2, 3};
  const rg_tensor zeros_only = tensor(words + 3, RG_UINT64, 1, six), scalar = tensor(words, RG_UINT64, 0, NULL),
                  numbers = tensor(words, RG_INT64, 1, six), nowhere = tensor(NULL, RG_UINT64, 1, six);
  int64_t count = 7;
  CHECK(fails(rg_check_padded(NULL, NULL, &count, message()), RG_INVALID_ARGUMENT, "NULL [report]"));
  CHECK(fails(rg_check_padded(NULL, &scalar, NULL, message()), RG_INVALID_ARGUMENT, "NULL [count]"));
  CHECK(fails(rg_check_padded(NULL, &zeros_only, &count, message()), RG_INVALID_ARGUMENT, "report") && count == 0);
  CHECK(fails(rg_check_padded(NULL, &scalar, &count, message()), RG_INVALID_ARGUMENT, "report"));
  CHECK(fails(rg_check_padded(NULL, &numbers, &count, message()), RG_INVALID_ARGUMENT, "report"));
  CHECK(fails(rg_check_padded(NULL, &nowhere, &count, message()), RG_INVALID_ARGUMENT, "no data [report.data"));
}

int main(void) {
  test_room();
  test_reports();
  return report();
}
