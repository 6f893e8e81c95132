#include "raggrad/ops/sparse_segment/sparse_segment.h"

#include "dtypes.h"
#include "operators.h"
#include "outputs.h"
#include "runtime.h"
#include "views.h"

namespace raggrad::python {
namespace {

using namespace nb::literals;

// The inputs that all six gradients have.
struct Inputs {
  Inputs(std::string_view op, std::string_view dim0_name, nb::handle grad_object, nb::handle indices_object,
         nb::handle segment_ids_object, nb::handle dim0_object, nb::handle t, nb::handle tidx, nb::handle tsegmentids)
      : grad(ViewOf(
            grad_object,
            {.op = op, .name = "grad", .integers = DType::kFloat32, .attribute = "T", .stated = ParseDType(t, op, "T")},
            keep)),
        indices(Ids(op, "indices", indices_object, "Tidx", tidx)),
        segment_ids(Ids(op, "segment_ids", segment_ids_object, "Tsegmentids", tsegmentids)),
        dim0(ViewOf(dim0_object, {.op = op, .name = dim0_name, .literal = DType::kInt32}, keep)) {}

  KeepAlive keep;
  TensorView grad, indices, segment_ids, dim0;

 private:
  TensorView Ids(std::string_view op, std::string_view name, nb::handle object, std::string_view attribute,
                 nb::handle stated) {
    return ViewOf(object,
                  {.op = op,
                   .name = name,
                   .literal = DType::kInt32,
                   .attribute = attribute,
                   .stated = ParseDType(stated, op, attribute)},
                  keep);
  }
};

template <SegmentCombiner kCombiner>
void DefineCombiner(nb::module_& module, const char* v1, const char* v2) {
  module.def(
      v1,
      [v1](nb::handle grad, nb::handle indices, nb::handle segment_ids, nb::handle output_dim0, nb::handle t,
           nb::handle tidx, nb::handle tsegmentids, bool fast) {
        const Inputs in(v1, "output_dim0", grad, indices, segment_ids, output_dim0, t, tidx, tsegmentids);
        return MakeOutput(RunOperator(fast,
                                      [&](const Context& ctx) {
                                        return SparseSegmentGrad(kCombiner, in.grad, in.indices, in.segment_ids,
                                                                 in.dim0, ctx);
                                      }),
                          grad);
      },
      "grad"_a.none(), "indices"_a.none(), "segment_ids"_a.none(), "output_dim0"_a.none(), "T"_a.none(),
      "Tidx"_a.none(), "Tsegmentids"_a.none(), "fast"_a);
  module.def(
      v2,
      [v2](nb::handle grad, nb::handle indices, nb::handle segment_ids, nb::handle dense_output_dim0, nb::handle t,
           nb::handle tidx, nb::handle tsegmentids, bool fast) {
        const Inputs in(v2, "dense_output_dim0", grad, indices, segment_ids, dense_output_dim0, t, tidx, tsegmentids);
        SparseSegmentGradV2Output out = RunOperator(fast, [&](const Context& ctx) {
          return SparseSegmentGradV2(kCombiner, in.grad, in.indices, in.segment_ids, in.dim0, ctx);
        });
        return nb::make_tuple(MakeOutput(std::move(out.output), grad),
                              MakeOutput(std::move(out.sorted_unique_indices), grad));
      },
      "grad"_a.none(), "indices"_a.none(), "segment_ids"_a.none(), "dense_output_dim0"_a.none(), "T"_a.none(),
      "Tidx"_a.none(), "Tsegmentids"_a.none(), "fast"_a);
}

}  // namespace

void DefineSparseSegment(nb::module_& module) {
  DefineCombiner<SegmentCombiner::kSum>(module, "SparseSegmentSumGrad", "SparseSegmentSumGradV2");
  DefineCombiner<SegmentCombiner::kMean>(module, "SparseSegmentMeanGrad", "SparseSegmentMeanGradV2");
  DefineCombiner<SegmentCombiner::kSqrtN>(module, "SparseSegmentSqrtNGrad", "SparseSegmentSqrtNGradV2");
}

}  // namespace raggrad::python
