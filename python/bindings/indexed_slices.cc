#include "raggrad/ops/sparse_segment/indexed_slices.h"

#include <nanobind/stl/string_view.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "operators.h"
#include "outputs.h"
#include "raggrad/ops/sparse_segment/plan/plan_state.h"
#include "raggrad/ops/sparse_segment/segment_order.h"
#include "runtime.h"
#include "segment_reader.h"
#include "tensor.h"
#include "views.h"

namespace raggrad::python {
namespace {

using namespace nb::literals;

// RunOperator for functions that return only a Status.
template <class F>
void RunCheck(const Reader& read, const F& call) {
  struct Done {};
  RunOperator(read.keep, [&](const Context& ctx) -> Result<Done> {
    if (Status s = call(ctx); !s.ok()) return s;
    return Done{};
  });
}

// Pickles a plan as the ids it was made from: sorting them again takes less time than sending the plan.
nb::tuple Reduce(nb::handle_t<SegmentPlan> self) {
  const SegmentPlan& plan = nb::cast<const SegmentPlan&>(self);
  const SegmentPlan::State& state = plan.state();
  if (!state.device.is_cpu()) {
    RaiseInvalid("SegmentPlan: a plan in device memory cannot be pickled [self: expected host memory, got ",
                 state.device, "]; pickle its ids instead");
  }
  const std::string_view dtype = DTypeName(state.index_dtype);
  const auto ids = [&](const TensorView& view) {
    return NumpyView(view, self, /*writable=*/false).attr("astype")(nb::str(dtype.data(), dtype.size()));
  };
  return nb::make_tuple(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(self.ptr()))),
                        nb::make_tuple(ids(state.indices_view()), ids(state.segment_ids_view()),
                                       plan.sizes().table_rows, plan.sizes().num_segments));
}

// Runs a function that changes the tables of `read`, and tells the frameworks that own them.
template <class F>
void RunUpdate(const Reader& read, AccumulationArgument accumulation, const F& call) {
  RunInPlace(read.keep, accumulation, call);
  for (const nb::object& table : read.changed) NoteChange(table);
}

void DefinePlan(nb::module_& module) {
  // Missing arguments become None, so that the error names them.
  nb::class_<SegmentPlan>(module, "SegmentPlan",
                          R"(Ids of a segment operator, checked, sorted and counted once, for any number of calls.

SegmentPlan(indices, segment_ids, num_rows, num_segments) is for ids that are known early, in a data loader, or used more
than once: for the forward and the gradient, or for several tables. Functions of raggrad.ops that get a plan skip that
work, a third to a half of a gradient's time, and give the same bits. Threads can share a plan.

Args:
  indices: [n], integers in [0, num_rows): which rows of the table.
  segment_ids: [n], integers in [0, num_segments): where they go. Forwards need them ascending.
  num_rows: rows of the table; at most 2^32.
  num_segments: rows of the pooled result, and of its gradient.

>>> import numpy as np
>>> from raggrad import SegmentPlan, ops, optimizers
>>> table = np.float32([[1], [2], [4]])
>>> plan = SegmentPlan(indices=[2, 0, 2], segment_ids=[0, 0, 1], num_rows=3, num_segments=2)
>>> plan
SegmentPlan(3 ids, 2 of 3 rows, 2 segments)
>>> ops.sparse_segment_mean(table, plan=plan).tolist()
[[2.5], [4.0]]
>>> sgd = optimizers.SGD(learning_rate=0.5)
>>> ops.sparse_segment_mean_grad_apply_(table, np.float32([[2], [6]]), plan=plan, optimizer=sgd)
>>> table.tolist()
[[0.5], [2.0], [0.5]]

A plan cannot change, so a copy of it is the plan itself. Pickling it, as between processes, sends the ids; the receiver
plans them again.
)",
                          nb::is_weak_referenceable())
      .def(
          "__init__",
          [](SegmentPlan* self, nb::handle indices, nb::handle segment_ids, nb::handle num_rows,
             nb::handle num_segments) {
            Reader read{"SegmentPlan"};
            const TensorView i = read.Ids("indices", indices);
            const TensorView s = read.Ids("segment_ids", segment_ids);
            const SegmentPlan::Sizes sizes{read.TableRows("num_rows", num_rows),
                                           read.Segments("num_segments", num_segments)};
            new (self) SegmentPlan(
                RunOperator(read.keep, [&](const Context& ctx) { return SegmentPlan::Make(i, s, sizes, ctx); }));
          },
          "indices"_a = nb::none(), "segment_ids"_a = nb::none(), "num_rows"_a = nb::none(),
          "num_segments"_a = nb::none(),
          nb::sig("def __init__(self, indices: object, segment_ids: object, num_rows: int, num_segments: int) -> None"))
      .def_prop_ro("num_ids", &SegmentPlan::num_ids)
      .def_prop_ro("num_unique", &SegmentPlan::num_unique, "How many rows a gradient has.")
      .def_prop_ro("num_rows", [](const SegmentPlan& plan) { return plan.sizes().table_rows; })
      .def_prop_ro("num_segments", [](const SegmentPlan& plan) { return plan.sizes().num_segments; })
      .def_prop_ro("ascending", &SegmentPlan::ascending, "Whether the segment ids ascend, as forwards need it.")
      .def(
          "check_made_from",
          [](const SegmentPlan& plan, nb::handle indices, nb::handle segment_ids) {
            Reader read{"SegmentPlan.check_made_from"};
            const TensorView i = read.Ids("indices", indices);
            const TensorView s = read.Ids("segment_ids", segment_ids);
            RunCheck(read, [&](const Context& ctx) { return plan.CheckMadeFrom(i, s, ctx); });
          },
          "indices"_a.none(), "segment_ids"_a.none(),
          "Raises InvalidArgumentError, naming the first difference, if the plan was made from other ids.")
      .def("__reduce__", &Reduce)
      .def("__copy__", [](nb::handle_t<SegmentPlan> self) { return nb::borrow(self); })
      .def(
          "__deepcopy__", [](nb::handle_t<SegmentPlan> self, nb::handle) { return nb::borrow(self); }, "memo"_a)
      .def("__repr__", [](const SegmentPlan& plan) {
        return nb::str("SegmentPlan({} ids, {} of {} rows, {} segments)")
            .format(plan.num_ids(), plan.num_unique(), plan.sizes().table_rows, plan.sizes().num_segments);
      });

  module.def(
      "segment_with_plan",
      [](std::string_view op, std::string_view combiner, nb::handle data, const SegmentPlan& plan,
         AccumulationArgument accumulation, nb::handle weights) {
        Reader read{op};
        const TensorView values = read.Values("data", data);
        const SegmentPooling pooling = read.Pooling(combiner, weights, values.dtype);
        return MakeOutput(RunOperator(read.keep, accumulation,
                                      [&](const Context& ctx) { return SparseSegment(pooling, values, plan, ctx); }),
                          data);
      },
      "op"_a, "combiner"_a, "data"_a.none(), "plan"_a, "accumulation"_a.none(), "weights"_a.none() = nb::none());
  module.def(
      "segment_grad_with_plan",
      [](std::string_view op, std::string_view combiner, nb::handle grad, const SegmentPlan& plan,
         AccumulationArgument accumulation, nb::handle weights) {
        Reader read{op};
        const TensorView values = read.Values("grad", grad);
        const SegmentPooling pooling = read.Pooling(combiner, weights, values.dtype);
        SparseSegmentGradV2Output out = RunOperator(read.keep, accumulation, [&](const Context& ctx) {
          return SparseSegmentGradV2(pooling, values, plan, ctx);
        });
        return nb::make_tuple(MakeOutput(std::move(out.output), grad),
                              MakeOutput(std::move(out.sorted_unique_indices), grad));
      },
      "op"_a, "combiner"_a, "grad"_a.none(), "plan"_a, "accumulation"_a.none(), "weights"_a.none() = nb::none());
  module.def(
      "segment_weights_grad_with_plan",
      [](std::string_view op, std::string_view combiner, nb::handle grad, nb::handle data, const SegmentPlan& plan,
         AccumulationArgument accumulation, nb::handle weights) {
        Reader read{op};
        const TensorView g = read.Values("grad", grad);
        const TensorView d = read.Values("data", data);
        const SegmentPooling pooling = read.Pooling(combiner, weights, d.dtype);
        return MakeOutput(
            RunOperator(read.keep, accumulation,
                        [&](const Context& ctx) { return SparseSegmentWeightsGrad(pooling, g, d, plan, ctx); }),
            grad);
      },
      "op"_a, "combiner"_a, "grad"_a.none(), "data"_a.none(), "plan"_a, "accumulation"_a.none(), "weights"_a.none());
}

// The segment functions of raggrad.ops. They take more types of ids and larger tables than TensorFlow's operators.
void DefineSegments(nb::module_& module) {
  module.def(
      "pool_segments",
      [](std::string_view op, std::string_view combiner, nb::handle data, nb::handle segment_ids, int64_t num_segments,
         AccumulationArgument accumulation) {
        Reader read{op};
        const SegmentCombiner combine = CombinerOf(op, combiner);
        const DType integers = combine == SegmentCombiner::kSum ? DType::kInt32 : DType::kFloat32;
        const TensorView d = ViewOf(data, {.op = op, .name = "data", .integers = integers}, read.keep);
        const Segments segments = {read.Ids("segment_ids", segment_ids), num_segments};
        return MakeOutput(RunOperator(read.keep, accumulation,
                                      [&](const Context& ctx) { return PoolSegments(combine, d, segments, ctx); }),
                          data);
      },
      "op"_a, "combiner"_a, "data"_a.none(), "segment_ids"_a.none(), "num_segments"_a, "accumulation"_a.none());
  module.def(
      "segment",
      [](std::string_view op, std::string_view name, std::string_view combiner, nb::handle data, nb::handle indices,
         nb::handle segment_ids, nb::handle num_segments, AccumulationArgument accumulation, nb::handle weights) {
        Reader read{op};
        const bool whole = weights.is_none() && CombinerOf(op, combiner) == SegmentCombiner::kSum;
        const DType integers = whole ? DType::kInt32 : DType::kFloat32;
        const TensorView d = ViewOf(data, {.op = op, .name = name, .integers = integers}, read.keep);
        const TensorView i = read.Ids("indices", indices);
        const TensorView s = read.Ids("segment_ids", segment_ids);
        std::optional<int64_t> count;
        if (!num_segments.is_none()) count = read.Segments("num_segments", num_segments);
        const SegmentPooling pooling = read.Pooling(combiner, weights, d.dtype);
        return MakeOutput(RunOperator(read.keep, accumulation,
                                      [&](const Context& ctx) {
                                        return count ? SparseSegmentWithNumSegments(pooling, d, i, s,
                                                                                    TensorView::Scalar(*count), ctx)
                                                     : SparseSegment(pooling, d, i, s, ctx);
                                      }),
                          data);
      },
      "op"_a, "name"_a, "combiner"_a, "data"_a.none(), "indices"_a.none(), "segment_ids"_a.none(),
      "num_segments"_a.none(), "accumulation"_a.none(), "weights"_a.none() = nb::none());
  module.def(
      "segment_grad",
      [](std::string_view op, std::string_view combiner, nb::handle grad, nb::handle indices, nb::handle segment_ids,
         nb::handle num_rows, AccumulationArgument accumulation, nb::handle weights) {
        Reader read{op};
        const TensorView g = read.Values("grad", grad);
        const TensorView i = read.Ids("indices", indices);
        const TensorView s = read.Ids("segment_ids", segment_ids);
        const int64_t rows = read.TableRows("num_rows", num_rows);
        const SegmentPooling pooling = read.Pooling(combiner, weights, g.dtype);
        IndexedSlices out = RunOperator(
            read.keep, accumulation,
            [&](const Context& ctx) { return SparseSegmentGradSlices(pooling, g, i, s, rows, ctx); }, IsTiny(g, i));
        return nb::make_tuple(MakeOutput(std::move(out.values), grad), MakeOutput(std::move(out.indices), grad));
      },
      "op"_a, "combiner"_a, "grad"_a.none(), "indices"_a.none(), "segment_ids"_a.none(), "num_rows"_a.none(),
      "accumulation"_a.none(), "weights"_a.none() = nb::none());
  module.def(
      "segment_weights_grad",
      [](std::string_view op, std::string_view combiner, nb::handle grad, nb::handle data, nb::handle indices,
         nb::handle segment_ids, AccumulationArgument accumulation, nb::handle weights) {
        Reader read{op};
        const TensorView g = read.Values("grad", grad);
        const TensorView d = read.Values("data", data);
        const TensorView i = read.Ids("indices", indices);
        const TensorView s = read.Ids("segment_ids", segment_ids);
        const SegmentPooling pooling = read.Pooling(combiner, weights, d.dtype);
        return MakeOutput(
            RunOperator(read.keep, accumulation,
                        [&](const Context& ctx) { return SparseSegmentWeightsGrad(pooling, g, d, i, s, ctx); }),
            grad);
      },
      "op"_a, "combiner"_a, "grad"_a.none(), "data"_a.none(), "indices"_a.none(), "segment_ids"_a.none(),
      "accumulation"_a.none(), "weights"_a.none());
}

void DefineSlices(nb::module_& module) {
  module.def(
      "to_dense",
      [](nb::handle values, nb::handle indices, int64_t rows, AccumulationArgument accumulation) {
        Reader read{"IndexedSlices.to_dense"};
        const IndexedSlicesView slices = read.Slices(values, indices, rows);
        return MakeOutput(
            RunOperator(read.keep, accumulation, [&](const Context& ctx) { return ToDense(slices, ctx); }), values);
      },
      "values"_a.none(), "indices"_a.none(), "rows"_a, "accumulation"_a.none());
  module.def(
      "coalesce",
      [](nb::handle values, nb::handle indices, int64_t rows, AccumulationArgument accumulation) {
        Reader read{"IndexedSlices.coalesce"};
        const IndexedSlicesView slices = read.Slices(values, indices, rows);
        IndexedSlices out =
            RunOperator(read.keep, accumulation, [&](const Context& ctx) { return Coalesce(slices, ctx); });
        return nb::make_tuple(MakeOutput(std::move(out.values), values), MakeOutput(std::move(out.indices), values));
      },
      "values"_a.none(), "indices"_a.none(), "rows"_a, "accumulation"_a.none());
  module.def(
      "apply_rows",
      [](nb::handle values, nb::handle indices, int64_t rows, const nb::tuple& update, nb::handle table,
         AccumulationArgument accumulation) {
        Reader read{"IndexedSlices.apply_"};
        const IndexedSlicesView slices = read.Slices(values, indices, rows);
        const RowUpdate rule = read.Update(update);
        const MutableTensorView view = read.Table("table", table);
        RunUpdate(read, accumulation, [&](const Context& ctx) { return ApplyRows(slices, rule, view, ctx); });
      },
      "values"_a.none(), "indices"_a.none(), "rows"_a, "update"_a, "table"_a.none(), "accumulation"_a.none());
}

void DefineFused(nb::module_& module) {
  module.def(
      "segment_grad_apply",
      [](std::string_view op, std::string_view combiner, nb::handle grad, nb::handle indices, nb::handle segment_ids,
         const nb::tuple& update, nb::handle table, AccumulationArgument accumulation, nb::handle weights) {
        Reader read{op};
        const TensorView g = read.Values("grad", grad);
        const TensorView i = read.Ids("indices", indices);
        const TensorView s = read.Ids("segment_ids", segment_ids);
        const RowUpdate rule = read.Update(update);
        const MutableTensorView view = read.Table("table", table);
        const SegmentPooling pooling = read.Pooling(combiner, weights, g.dtype);
        RunUpdate(read, accumulation,
                  [&](const Context& ctx) { return SparseSegmentGradApply(pooling, g, i, s, rule, view, ctx); });
      },
      "op"_a, "combiner"_a, "grad"_a.none(), "indices"_a.none(), "segment_ids"_a.none(), "update"_a, "table"_a.none(),
      "accumulation"_a.none(), "weights"_a.none() = nb::none());
  module.def(
      "segment_grad_apply_with_plan",
      [](std::string_view op, std::string_view combiner, nb::handle grad, const SegmentPlan& plan,
         const nb::tuple& update, nb::handle table, AccumulationArgument accumulation, nb::handle weights) {
        Reader read{op};
        const TensorView g = read.Values("grad", grad);
        const RowUpdate rule = read.Update(update);
        const MutableTensorView view = read.Table("table", table);
        const SegmentPooling pooling = read.Pooling(combiner, weights, g.dtype);
        RunUpdate(read, accumulation,
                  [&](const Context& ctx) { return SparseSegmentGradApply(pooling, g, plan, rule, view, ctx); });
      },
      "op"_a, "combiner"_a, "grad"_a.none(), "plan"_a, "update"_a, "table"_a.none(), "accumulation"_a.none(),
      "weights"_a.none() = nb::none());
}

}  // namespace

void DefineIndexedSlices(nb::module_& module) {
  DefinePlan(module);
  DefineSegments(module);
  DefineSlices(module);
  DefineFused(module);
  module.def(
      "ids_of",
      [](nb::handle ids, std::string_view op, std::string_view name) {
        PyTensor tensor;
        tensor.writable = false;
        tensor.view = IdsOf(ids, {.op = op, .name = name}, tensor.keep);
        return tensor;
      },
      "ids"_a.none(), "op"_a, "name"_a, "Ids of any integer type as a Tensor of int32 or int64.");
  module.def(
      "in_kind_of",
      [](nb::handle array, nb::handle like) -> nb::object {
        KeepAlive keep;
        const TensorView view = ViewOf(array, {.op = "in_kind_of", .name = "array", .detached = true}, keep);
        if (!view.device.is_cpu()) return nb::borrow(array);  // it came from a function that keeps the kind
        return MakeOutput(RunOperator(keep,
                                      [&](const Context& ctx) -> Result<Tensor> {
                                        Result<Tensor> copy = AllocateOutput(ctx, 0, view.dtype, view.shape);
                                        if (copy.ok() && copy->bytes() > 0)
                                          std::memcpy(copy->data(), view.data, copy->bytes());
                                        return copy;
                                      }),
                          like);
      },
      "array"_a, "like"_a, "A copy of an array of numbers, of the kind (NumPy, torch, ...) of `like`.");
}

}  // namespace raggrad::python
