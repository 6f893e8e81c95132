// Pooling with weights through the C interface: results, and arguments that are refused.
#include "raggrad/capi/test/weighted_operators.h"

static rg_output first = RG_INIT(rg_output), second = RG_INIT(rg_output), third = RG_INIT(rg_output);

static void test_results(void) {
  for (int64_t i = 0; i < COUNT(weighted_operators); ++i) {
    rg_output out[kMostOutputs];
    CHECK(run_operator(&weighted_operators[i], NULL, out) == RG_OK);
    for (int o = 0; o < weighted_operators[i].count; ++o) rg_output_free(NULL, &out[o]);
  }
}

static void test_bad_ids(void) {
  WeightedIds in;
  const rg_tensor table = tensor(wide_table, RG_FLOAT32, 2, seven_by_two), grad = gradient().grad;
  rg_weighted_ids of = *weighted_ids(&in, 2);
#define EXPECT_REFUSED(call, part) CHECK(fails(call, RG_INVALID_ARGUMENT, part) && owns_nothing(&first))
  EXPECT_REFUSED(rg_weighted_segment(NULL, RG_SUM, &table, &of, -1, &first, message()),
                 "rg_weighted_segment: no such divisor [ids.divisor: expected RG_BY_WEIGHTS (0) or RG_BY_COUNT (1), "
                 "got 2]");
  of.divisor = RG_BY_COUNT;
  EXPECT_REFUSED(rg_weighted_segment(NULL, 3, &table, &of, -1, &first, message()), "no such combiner");
  EXPECT_REFUSED(rg_weighted_segment(NULL, RG_SUM, &table, &of, -2, &first, message()), "num_segments");
  EXPECT_REFUSED(rg_weighted_segment(NULL, RG_SUM, &table, NULL, -1, &first, message()), "NULL [ids]");
  of.weights = NULL;
  EXPECT_REFUSED(rg_weighted_segment(NULL, RG_SUM, &table, &of, -1, &first, message()), "NULL [ids.weights]");
  of.weights = &grad;
  EXPECT_REFUSED(rg_weighted_segment_weights_grad(NULL, RG_SUM, &grad, &table, &of, &first, message()),
                 "weights and indices should have same size [weights: expected shape [3], got shape [2,2]]");
  of.weights = &in.weights;
  of.indices = NULL;
  EXPECT_REFUSED(rg_weighted_segment_grad(NULL, RG_SUM, &grad, &of, 7, &first, message()), "NULL [ids.indices]");
  of.struct_size = 4;
  EXPECT_REFUSED(rg_weighted_segment_grad(NULL, RG_SUM, &grad, &of, 7, &first, message()), "struct_size");
}

static void test_plans(void) {
  WeightedIds in;
  rg_weighted_ids of = *weighted_ids(&in, RG_BY_WEIGHTS);
  const rg_tensor table = tensor(wide_table, RG_FLOAT32, 2, seven_by_two), grad = gradient().grad;
  rg_segment_plan* plan;
  CHECK(rg_segment_plan_make(NULL, of.indices, of.segment_ids, 7, 2, &plan, message()) == RG_OK);
  of.plan = plan;
  EXPECT_REFUSED(rg_weighted_segment(NULL, RG_MEAN, &table, &of, -1, &first, message()), "ids beside the plan");
  of.indices = of.segment_ids = NULL;
  EXPECT_REFUSED(rg_weighted_segment(NULL, RG_MEAN, &table, &of, 3, &first, message()),
                 "another size [num_segments: expected 2, got 3]");
  EXPECT_REFUSED(rg_weighted_segment_grad_slices(NULL, RG_MEAN, &grad, &of, 8, &first, &second, message()),
                 "another size [table_rows: expected 7, got 8]");
  EXPECT_REFUSED(rg_weighted_segment_grad_padded(NULL, RG_MEAN, &grad, &of, 7, 2, &first, &second, &third, message()),
                 "padded forms have no plans");
  CHECK(rg_weighted_segment_grad_slices(NULL, RG_SUM, &grad, &of, 7, &first, &second, message()) == RG_OK);
  static const float rows[] = {6, 12, 18, 36};
  CHECK(holds(&first, RG_FLOAT32, 2, two_by_two, rows));
  rg_output_free(NULL, &first);
  rg_output_free(NULL, &second);
  CHECK(rg_weighted_segment_grad(NULL, RG_SUM, &grad, &of, 7, &first, message()) == RG_OK);
  weighted_dense_check(&first);
  rg_output_free(NULL, &first);
  CHECK(rg_weighted_segment_weights_grad(NULL, RG_MEAN, &grad, &table, &of, &first, message()) == RG_OK);
  weights_grad_check(&first);
  rg_output_free(NULL, &first);
  rg_segment_plan_destroy(plan);
}

int main(void) {
  test_results();
  test_bad_ids();
  test_plans();
  return report();
}
