#include "raggrad/ops/sparse_segment/sparse_segment.h"

#include "dtypes.h"
#include "operators.h"
#include "outputs.h"
#include "runtime.h"
#include "views.h"

namespace raggrad::python {
namespace {

using namespace nb::literals;

// The view of ids or a size, of either index type.
TensorView ViewOfIds(std::string_view op, std::string_view name, nb::handle object, std::string_view attribute,
                     nb::handle stated, KeepAlive& keep) {
  return ViewOf(object,
                {.op = op,
                 .name = name,
                 .literal = DType::kInt32,
                 .attribute = attribute,
                 .stated = ParseDType(stated, op, attribute)},
                keep);
}

// The inputs that all six gradients have.
struct Inputs {
  Inputs(std::string_view op, std::string_view dim0_name, nb::handle grad_object, nb::handle indices_object,
         nb::handle segment_ids_object, nb::handle dim0_object, nb::handle t, nb::handle tidx, nb::handle tsegmentids)
      : grad(ViewOf(
            grad_object,
            {.op = op, .name = "grad", .integers = DType::kFloat32, .attribute = "T", .stated = ParseDType(t, op, "T")},
            keep)),
        indices(ViewOfIds(op, "indices", indices_object, "Tidx", tidx, keep)),
        segment_ids(ViewOfIds(op, "segment_ids", segment_ids_object, "Tsegmentids", tsegmentids, keep)),
        dim0(ViewOf(dim0_object, {.op = op, .name = dim0_name, .literal = DType::kInt32}, keep)) {}

  KeepAlive keep;
  TensorView grad, indices, segment_ids, dim0;
};

template <SegmentCombiner kCombiner>
void DefineGrads(nb::module_& module, const char* v1, const char* v2) {
  module.def(
      v1,
      [v1](nb::handle grad, nb::handle indices, nb::handle segment_ids, nb::handle output_dim0, nb::handle t,
           nb::handle tidx, nb::handle tsegmentids, AccumulationArgument accumulation) {
        const Inputs in(v1, "output_dim0", grad, indices, segment_ids, output_dim0, t, tidx, tsegmentids);
        return MakeOutput(RunOperator(in.keep, accumulation,
                                      [&](const Context& ctx) {
                                        return SparseSegmentGrad(kCombiner, in.grad, in.indices, in.segment_ids,
                                                                 in.dim0, ctx);
                                      }),
                          grad);
      },
      "grad"_a.none(), "indices"_a.none(), "segment_ids"_a.none(), "output_dim0"_a.none(), "T"_a.none(),
      "Tidx"_a.none(), "Tsegmentids"_a.none(), "accumulation"_a.none());
  module.def(
      v2,
      [v2](nb::handle grad, nb::handle indices, nb::handle segment_ids, nb::handle dense_output_dim0, nb::handle t,
           nb::handle tidx, nb::handle tsegmentids, AccumulationArgument accumulation) {
        const Inputs in(v2, "dense_output_dim0", grad, indices, segment_ids, dense_output_dim0, t, tidx, tsegmentids);
        SparseSegmentGradV2Output out = RunOperator(
            in.keep, accumulation,
            [&](const Context& ctx) {
              return SparseSegmentGradV2(kCombiner, in.grad, in.indices, in.segment_ids, in.dim0, ctx);
            },
            IsTiny(in.grad, in.indices));
        static PyObject* type = nullptr;
        nb::object outputs[] = {MakeOutput(std::move(out.output), grad),
                                MakeOutput(std::move(out.sorted_unique_indices), grad)};
        return NamedTuple(ImportOnce(type, "raggrad.raw_ops.sparse_segment_grad", "SparseSegmentGradV2Output"),
                          outputs);
      },
      "grad"_a.none(), "indices"_a.none(), "segment_ids"_a.none(), "dense_output_dim0"_a.none(), "T"_a.none(),
      "Tidx"_a.none(), "Tsegmentids"_a.none(), "accumulation"_a.none());
}

// The inputs that all six forwards have. Sum also takes integers.
struct ForwardInputs {
  ForwardInputs(SegmentCombiner combiner, std::string_view op, nb::handle data_object, nb::handle indices_object,
                nb::handle segment_ids_object, nb::handle t, nb::handle tidx, nb::handle tsegmentids)
      : data(ViewOf(data_object,
                    {.op = op,
                     .name = "data",
                     .integers = combiner == SegmentCombiner::kSum ? DType::kInt32 : DType::kFloat32,
                     .attribute = "T",
                     .stated = ParseDType(t, op, "T")},
                    keep)),
        indices(ViewOfIds(op, "indices", indices_object, "Tidx", tidx, keep)),
        segment_ids(ViewOfIds(op, "segment_ids", segment_ids_object, "Tsegmentids", tsegmentids, keep)) {}

  KeepAlive keep;
  TensorView data, indices, segment_ids;
};

template <SegmentCombiner kCombiner>
void DefineForwards(nb::module_& module, const char* plain, const char* with_num_segments) {
  module.def(
      plain,
      [plain](nb::handle data, nb::handle indices, nb::handle segment_ids, nb::handle t, nb::handle tidx,
              nb::handle tsegmentids, AccumulationArgument accumulation) {
        const ForwardInputs in(kCombiner, plain, data, indices, segment_ids, t, tidx, tsegmentids);
        return MakeOutput(RunOperator(in.keep, accumulation,
                                      [&](const Context& ctx) {
                                        return SparseSegment(kCombiner, in.data, in.indices, in.segment_ids, ctx);
                                      }),
                          data);
      },
      "data"_a.none(), "indices"_a.none(), "segment_ids"_a.none(), "T"_a.none(), "Tidx"_a.none(),
      "Tsegmentids"_a.none(), "accumulation"_a.none());
  module.def(
      with_num_segments,
      [with_num_segments](nb::handle data, nb::handle indices, nb::handle segment_ids, nb::handle num_segments,
                          nb::handle t, nb::handle tidx, nb::handle tsegmentids, nb::handle tnumsegments,
                          AccumulationArgument accumulation) {
        ForwardInputs in(kCombiner, with_num_segments, data, indices, segment_ids, t, tidx, tsegmentids);
        const TensorView count =
            ViewOfIds(with_num_segments, "num_segments", num_segments, "Tnumsegments", tnumsegments, in.keep);
        return MakeOutput(RunOperator(in.keep, accumulation,
                                      [&](const Context& ctx) {
                                        return SparseSegmentWithNumSegments(kCombiner, in.data, in.indices,
                                                                            in.segment_ids, count, ctx);
                                      }),
                          data);
      },
      "data"_a.none(), "indices"_a.none(), "segment_ids"_a.none(), "num_segments"_a.none(), "T"_a.none(),
      "Tidx"_a.none(), "Tsegmentids"_a.none(), "Tnumsegments"_a.none(), "accumulation"_a.none());
}

}  // namespace

void DefineSparseSegment(nb::module_& module) {
  DefineForwards<SegmentCombiner::kSum>(module, "SparseSegmentSum", "SparseSegmentSumWithNumSegments");
  DefineForwards<SegmentCombiner::kMean>(module, "SparseSegmentMean", "SparseSegmentMeanWithNumSegments");
  DefineForwards<SegmentCombiner::kSqrtN>(module, "SparseSegmentSqrtN", "SparseSegmentSqrtNWithNumSegments");
  DefineGrads<SegmentCombiner::kSum>(module, "SparseSegmentSumGrad", "SparseSegmentSumGradV2");
  DefineGrads<SegmentCombiner::kMean>(module, "SparseSegmentMeanGrad", "SparseSegmentMeanGradV2");
  DefineGrads<SegmentCombiner::kSqrtN>(module, "SparseSegmentSqrtNGrad", "SparseSegmentSqrtNGradV2");
}

}  // namespace raggrad::python
