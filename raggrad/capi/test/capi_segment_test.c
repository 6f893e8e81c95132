// Plans, slices and updates through the C interface: sizes, and arguments that are refused.
#include "raggrad/capi/test/segment_operators.h"

static rg_output first = RG_INIT(rg_output), second = RG_INIT(rg_output);

static void test_plans(void) {
  const Gradient g = gradient();
  rg_segment_plan* plan = NULL;
  CHECK(rg_segment_plan_make(NULL, &g.indices, &g.segment_ids, 7, 2, &plan, message()) == RG_OK);
  rg_segment_plan_sizes sizes = RG_INIT(rg_segment_plan_sizes);
  CHECK(rg_segment_plan_get_sizes(plan, &sizes, message()) == RG_OK && sizes.struct_size == sizeof sizes);
  CHECK(sizes.num_ids == 3 && sizes.num_unique == 2 && sizes.table_rows == 7 && sizes.num_segments == 2);
  CHECK(sizes.ascending == 1);

  CHECK(rg_segment_plan_check_made_from(NULL, plan, &g.indices, &g.segment_ids, message()) == RG_OK);
  const rg_tensor others = tensor(ids, RG_INT32, 1, three);
  CHECK(rg_segment_plan_check_made_from(NULL, plan, &others, &g.segment_ids, message()) == RG_INVALID_ARGUMENT);

  const rg_tensor wrong_grad = tensor(slice_data, RG_FLOAT32, 2, three_by_two);
  CHECK(rg_sparse_segment_grad_v2_with_plan(NULL, RG_SUM, &wrong_grad, plan, &first, &second, message()) ==
        RG_INVALID_ARGUMENT);
  CHECK(owns_nothing(&first) && owns_nothing(&second));
  CHECK(fails(rg_sparse_segment_grad_v2_with_plan(NULL, 3, &g.grad, plan, &first, &second, message()),
              RG_INVALID_ARGUMENT, "no such combiner"));
  CHECK(fails(rg_sparse_segment_grad_v2_with_plan(NULL, RG_SUM, &g.grad, NULL, &first, &second, message()),
              RG_INVALID_ARGUMENT, "NULL [plan]"));
  CHECK(fails(rg_sparse_segment_grad_with_plan(NULL, RG_SUM, &g.grad, NULL, &first, message()), RG_INVALID_ARGUMENT,
              "NULL [plan]"));
  CHECK(fails(rg_sparse_segment_with_plan(NULL, RG_SUM, &g.grad, NULL, &first, message()), RG_INVALID_ARGUMENT,
              "NULL [plan]"));
  CHECK(fails(rg_segment_plan_get_sizes(NULL, &sizes, message()), RG_INVALID_ARGUMENT, "NULL [plan]"));
  CHECK(fails(rg_segment_plan_get_sizes(plan, NULL, message()), RG_INVALID_ARGUMENT, "NULL [sizes]"));
  CHECK(fails(rg_segment_plan_check_made_from(NULL, NULL, &others, &others, message()), RG_INVALID_ARGUMENT,
              "NULL [plan]"));
  CHECK(fails(rg_segment_plan_check_made_from(NULL, plan, NULL, &others, message()), RG_INVALID_ARGUMENT,
              "NULL [indices]"));
  rg_segment_plan_destroy(plan);
  rg_segment_plan_destroy(NULL);
}

static void test_plans_that_cannot_be_made(void) {
  const Gradient g = gradient();
  rg_segment_plan* const before = (rg_segment_plan*)&first;
  rg_segment_plan* plan = before;
#define EXPECT_NO_PLAN(table_rows, num_segments, part)                                                            \
  CHECK(fails(rg_segment_plan_make(NULL, &g.indices, &g.segment_ids, table_rows, num_segments, &plan, message()), \
              RG_INVALID_ARGUMENT, part));                                                                        \
  CHECK(plan == NULL);                                                                                            \
  plan = before
  EXPECT_NO_PLAN(5, 2, "5");
  EXPECT_NO_PLAN(7, 1, "1");
  EXPECT_NO_PLAN(-1, 2, "-1");
  EXPECT_NO_PLAN(7, INT64_MAX, "num_segments");
  CHECK(fails(rg_segment_plan_make(NULL, NULL, &g.segment_ids, 7, 2, &plan, message()), RG_INVALID_ARGUMENT,
              "rg_segment_plan_make: an argument is NULL [indices]"));
  CHECK(fails(rg_segment_plan_make(NULL, &g.indices, &g.segment_ids, 7, 2, NULL, message()), RG_INVALID_ARGUMENT,
              "NULL [plan]"));
  rg_context context = RG_INIT(rg_context);
  context.accumulation = -1;
  CHECK(fails(rg_segment_plan_make(&context, &g.indices, &g.segment_ids, 7, 2, &plan, message()), RG_INVALID_ARGUMENT,
              "no such accumulation"));
  CHECK(plan == NULL);
}

static void test_slices(void) {
  Slices s;
  rg_indexed_slices bad = *slices_of(&s);
  bad.table_rows = 5;
  CHECK(rg_indexed_slices_to_dense(NULL, &bad, &first, message()) == RG_INVALID_ARGUMENT && owns_nothing(&first));
  bad.table_rows = -3;
  CHECK(fails(rg_indexed_slices_coalesce(NULL, &bad, &first, &second, message()), RG_INVALID_ARGUMENT, "table_rows"));
  bad.table_rows = 7;
  bad.values = NULL;
  CHECK(fails(rg_indexed_slices_to_dense(NULL, &bad, &first, message()), RG_INVALID_ARGUMENT, "NULL [slices.values]"));
  bad.values = bad.indices;
  CHECK(rg_indexed_slices_to_dense(NULL, &bad, &first, message()) == RG_INVALID_ARGUMENT);
  CHECK(fails(rg_indexed_slices_to_dense(NULL, NULL, &first, message()), RG_INVALID_ARGUMENT, "NULL [slices]"));
  CHECK(fails(rg_indexed_slices_coalesce(NULL, &s.slices, &first, &first, message()), RG_INVALID_ARGUMENT, "twice"));
  const Gradient g = gradient();
  CHECK(rg_sparse_segment_grad_slices(NULL, RG_SUM, &g.grad, &g.indices, &g.segment_ids, INT64_MAX, &first, &second,
                                      message()) == RG_INVALID_ARGUMENT);
}

static void test_updates(void) {
  Slices s;
  const rg_indexed_slices* slices = slices_of(&s);
  float rows[14] = {0}, state[14] = {0};
  rg_mutable_tensor table = {sizeof table, rows, RG_FLOAT32, RG_CPU, 0, 2, seven_by_two};
  rg_mutable_tensor sums = table;
  sums.data = state;
  rg_row_update step;
#define EXPECT_NO_UPDATE(part)                                                                              \
  CHECK(fails(rg_indexed_slices_apply(NULL, slices, &step, &table, message()), RG_INVALID_ARGUMENT, part)); \
  for (int i = 0; i < 14; ++i) CHECK(rows[i] == 0 && state[i] == 0)
  rg_row_update_init(NULL, sizeof step, RG_ADAM, 1);
  rg_row_update_init(&step, sizeof step, RG_ADAM, 0.25);
  CHECK(step.struct_size == sizeof step && step.rule == RG_ADAM && step.learning_rate == 0.25);
  CHECK(step.epsilon == 1e-8 && step.beta1 == 0.9 && step.beta2 == 0.999 && step.step == 1 && step.m == NULL);
  EXPECT_NO_UPDATE("an argument is NULL [update.m]");
  step.m = &sums;
  EXPECT_NO_UPDATE("an argument is NULL [update.v]");
  step.v = &sums;
  EXPECT_NO_UPDATE("arrays overlap");
  rg_row_update_init(&step, sizeof step, RG_ADAGRAD, 0.25);
  CHECK(step.epsilon == 1e-7);
  EXPECT_NO_UPDATE("an argument is NULL [update.accumulator]");
  step.accumulator = &table;
  EXPECT_NO_UPDATE("arrays overlap");
  step.accumulator = &sums;
  sums.shape = two_by_two;
  EXPECT_NO_UPDATE("an array of the update has the wrong shape [accumulator: ");
  sums.shape = seven_by_two;
  sums.dtype = RG_FLOAT64;
  EXPECT_NO_UPDATE("accumulator");
  sums.dtype = 1000;
  EXPECT_NO_UPDATE("no such dtype [update.accumulator.dtype");
  rg_row_update_init(&step, sizeof step, RG_ROWWISE_ADAGRAD, 0.25);
  CHECK(step.epsilon == 1e-8);
  EXPECT_NO_UPDATE("an argument is NULL [update.accumulator]");
  sums.dtype = RG_FLOAT32;
  step.accumulator = &sums;
  EXPECT_NO_UPDATE("an array of the update has the wrong shape [accumulator: expected [7], got [7,2]]");
  step.rule = 4;
  EXPECT_NO_UPDATE(
      "no such rule [update.rule: expected RG_SGD (0), RG_ADAGRAD (1), RG_ADAM (2) or RG_ROWWISE_ADAGRAD (3), got 4]");
  step.rule = RG_SGD;
  table.device_number = 1;
  EXPECT_NO_UPDATE("[table.device_number: expected 0 for RG_CPU, got 1]");
  table.device_kind = RG_CUDA;
  EXPECT_NO_UPDATE("operands are on different devices");
  CHECK(fails(rg_indexed_slices_apply(NULL, slices, NULL, &table, message()), RG_INVALID_ARGUMENT, "NULL [update]"));
  CHECK(fails(rg_indexed_slices_apply(NULL, slices, &step, NULL, message()), RG_INVALID_ARGUMENT, "NULL [table]"));
  const Gradient g = gradient();
  CHECK(fails(rg_sparse_segment_grad_apply_with_plan(NULL, RG_SUM, &g.grad, NULL, &step, &table, message()),
              RG_INVALID_ARGUMENT, "NULL [plan]"));
  CHECK(fails(rg_sparse_segment_grad_apply(NULL, RG_SUM, &g.grad, &g.indices, NULL, &step, &table, message()),
              RG_INVALID_ARGUMENT, "NULL [segment_ids]"));
}

int main(void) {
  test_plans();
  test_plans_that_cannot_be_made();
  test_slices();
  test_updates();
  return report();
}
