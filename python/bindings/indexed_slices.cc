#include "raggrad/ops/sparse_segment/indexed_slices.h"

#include <nanobind/stl/string_view.h>

#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "dtypes.h"
#include "operators.h"
#include "outputs.h"
#include "raggrad/ops/sparse_segment/plan/plan_state.h"
#include "runtime.h"
#include "tables.h"
#include "tensor.h"
#include "views.h"

namespace raggrad::python {
namespace {

using namespace nb::literals;

SegmentCombiner CombinerOf(std::string_view op, std::string_view name) {
  if (name == "sum") return SegmentCombiner::kSum;
  if (name == "mean") return SegmentCombiner::kMean;
  if (name == "sqrtn") return SegmentCombiner::kSqrtN;
  RaiseInvalid(op, ": no such combiner [combiner: expected \"sum\", \"mean\" or \"sqrtn\", got \"", name, "\"]");
}

// Reads the operands of one call, in the order of the arguments.
struct Reader {
  std::string_view op;
  KeepAlive keep = {};
  std::vector<nb::object> changed = {};  // the tables and states that the call changes

  TensorView Values(std::string_view name, nb::handle object) {
    return ViewOf(object, {.op = op, .name = name, .integers = DType::kFloat32}, keep);
  }
  TensorView Ids(std::string_view name, nb::handle object) { return IdsOf(object, {.op = op, .name = name}, keep); }
  MutableTensorView Table(std::string_view name, nb::handle object) {
    MutableTensorView table = TableOf(object, {.op = op, .name = name, .detached = true}, keep);
    changed.push_back(nb::borrow(object));
    return table;
  }
  IndexedSlicesView Slices(nb::handle values, nb::handle indices, int64_t rows) {
    return {Values("values", values), Ids("indices", indices), rows};
  }

  double Number(std::string_view name, nb::handle object) const {
    double number = 0;
    if (!nb::try_cast(object, number)) {
      RaiseInvalid(op, ": ", name, " is no number [", name, ": expected a number, got ", TypeName(object), "]");
    }
    return number;
  }
  // Anything that Python accepts as an index: int, NumPy's integers, 0-dimensional arrays of them.
  int64_t Integer(std::string_view name, nb::handle object) const {
    const nb::object index = nb::steal(PyNumber_Index(object.ptr()));
    if (!index.is_valid()) PyErr_Clear();
    int overflow = 0;
    const int64_t number = index.is_valid() ? PyLong_AsLongLongAndOverflow(index.ptr(), &overflow) : 0;
    if (!index.is_valid() || overflow != 0) {
      RaiseInvalid(op, ": ", name, " is no whole number of 64 bits [", name, ": expected an int, got ",
                   nb::repr(object).c_str(), "]");
    }
    return number;
  }
  int64_t Size(std::string_view name, nb::handle object, int64_t most) const {
    const int64_t size = Integer(name, object);
    if (size < 0 || size > most) {
      RaiseInvalid(op, ": ", name, " is out of range [", name, ": expected 0 to ", most, ", got ", size, "]");
    }
    return size;
  }
  // table_rows: at most as many as contributions can name in 32 bits.
  int64_t TableRows(std::string_view name, nb::handle object) const { return Size(name, object, int64_t{1} << 32); }
  int64_t Segments(std::string_view name, nb::handle object) const { return Size(name, object, INT32_MAX); }

  // The update as raggrad.optimizers hands it over: a name, numbers, arrays.
  RowUpdate Update(const nb::tuple& parts) {
    const nb::str rule(parts[0]);
    const double learning_rate = Number("learning_rate", parts[1]);
    if (rule.equal(nb::str("sgd"))) return Sgd{learning_rate};
    if (rule.equal(nb::str("adagrad"))) {
      return Adagrad{.learning_rate = learning_rate,
                     .epsilon = Number("epsilon", parts[2]),
                     .accumulator = Table("accumulator", parts[3])};
    }
    const int64_t steps_before = Integer("step", parts[5]);
    return Adam{.learning_rate = learning_rate,
                .beta1 = Number("beta1", parts[2]),
                .beta2 = Number("beta2", parts[3]),
                .epsilon = Number("epsilon", parts[4]),
                .step = steps_before < INT64_MAX ? steps_before + 1 : steps_before,
                .m = Table("m", parts[6]),
                .v = Table("v", parts[7])};
  }
};

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
void RunUpdate(const Reader& read, SumOrder order, const F& call) {
  RunInPlace(read.keep, order, call);
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
      [](std::string_view op, std::string_view combiner, nb::handle data, const SegmentPlan& plan) {
        Reader read{op};
        const SegmentCombiner combine = CombinerOf(op, combiner);
        const TensorView values = read.Values("data", data);
        return MakeOutput(
            RunOperator(read.keep, [&](const Context& ctx) { return SparseSegment(combine, values, plan, ctx); }),
            data);
      },
      "op"_a, "combiner"_a, "data"_a.none(), "plan"_a);
  module.def(
      "segment_grad_with_plan",
      [](std::string_view op, std::string_view combiner, nb::handle grad, const SegmentPlan& plan, SumOrder order) {
        Reader read{op};
        const SegmentCombiner combine = CombinerOf(op, combiner);
        const TensorView values = read.Values("grad", grad);
        SparseSegmentGradV2Output out = RunOperator(
            read.keep, order, [&](const Context& ctx) { return SparseSegmentGradV2(combine, values, plan, ctx); });
        return nb::make_tuple(MakeOutput(std::move(out.output), grad),
                              MakeOutput(std::move(out.sorted_unique_indices), grad));
      },
      "op"_a, "combiner"_a, "grad"_a.none(), "plan"_a, "accumulation"_a.none());
}

// The segment functions of raggrad.ops. They take more types of ids and larger tables than TensorFlow's operators.
void DefineSegments(nb::module_& module) {
  module.def(
      "segment",
      [](std::string_view op, std::string_view name, std::string_view combiner, nb::handle data, nb::handle indices,
         nb::handle segment_ids, nb::handle num_segments) {
        Reader read{op};
        const SegmentCombiner combine = CombinerOf(op, combiner);
        const DType integers = combine == SegmentCombiner::kSum ? DType::kInt32 : DType::kFloat32;
        const TensorView d = ViewOf(data, {.op = op, .name = name, .integers = integers}, read.keep);
        const TensorView i = read.Ids("indices", indices);
        const TensorView s = read.Ids("segment_ids", segment_ids);
        std::optional<int64_t> count;
        if (!num_segments.is_none()) count = read.Segments("num_segments", num_segments);
        return MakeOutput(RunOperator(read.keep,
                                      [&](const Context& ctx) {
                                        return count ? SparseSegmentWithNumSegments(combine, d, i, s,
                                                                                    TensorView::Scalar(*count), ctx)
                                                     : SparseSegment(combine, d, i, s, ctx);
                                      }),
                          data);
      },
      "op"_a, "name"_a, "combiner"_a, "data"_a.none(), "indices"_a.none(), "segment_ids"_a.none(),
      "num_segments"_a.none());
  module.def(
      "segment_grad",
      [](std::string_view op, std::string_view combiner, nb::handle grad, nb::handle indices, nb::handle segment_ids,
         nb::handle num_rows, SumOrder order) {
        Reader read{op};
        const SegmentCombiner combine = CombinerOf(op, combiner);
        const TensorView g = read.Values("grad", grad);
        const TensorView i = read.Ids("indices", indices);
        const TensorView s = read.Ids("segment_ids", segment_ids);
        const int64_t rows = read.TableRows("num_rows", num_rows);
        IndexedSlices out = RunOperator(
            read.keep, order, [&](const Context& ctx) { return SparseSegmentGradSlices(combine, g, i, s, rows, ctx); });
        return nb::make_tuple(MakeOutput(std::move(out.values), grad), MakeOutput(std::move(out.indices), grad));
      },
      "op"_a, "combiner"_a, "grad"_a.none(), "indices"_a.none(), "segment_ids"_a.none(), "num_rows"_a.none(),
      "accumulation"_a.none());
}

void DefineSlices(nb::module_& module) {
  module.def(
      "to_dense",
      [](nb::handle values, nb::handle indices, int64_t rows, SumOrder order) {
        Reader read{"IndexedSlices.to_dense"};
        const IndexedSlicesView slices = read.Slices(values, indices, rows);
        return MakeOutput(RunOperator(read.keep, order, [&](const Context& ctx) { return ToDense(slices, ctx); }),
                          values);
      },
      "values"_a.none(), "indices"_a.none(), "rows"_a, "accumulation"_a.none());
  module.def(
      "coalesce",
      [](nb::handle values, nb::handle indices, int64_t rows, SumOrder order) {
        Reader read{"IndexedSlices.coalesce"};
        const IndexedSlicesView slices = read.Slices(values, indices, rows);
        IndexedSlices out = RunOperator(read.keep, order, [&](const Context& ctx) { return Coalesce(slices, ctx); });
        return nb::make_tuple(MakeOutput(std::move(out.values), values), MakeOutput(std::move(out.indices), values));
      },
      "values"_a.none(), "indices"_a.none(), "rows"_a, "accumulation"_a.none());
  module.def(
      "apply_rows",
      [](nb::handle values, nb::handle indices, int64_t rows, const nb::tuple& update, nb::handle table,
         SumOrder order) {
        Reader read{"IndexedSlices.apply_"};
        const IndexedSlicesView slices = read.Slices(values, indices, rows);
        const RowUpdate rule = read.Update(update);
        const MutableTensorView view = read.Table("table", table);
        RunUpdate(read, order, [&](const Context& ctx) { return ApplyRows(slices, rule, view, ctx); });
      },
      "values"_a.none(), "indices"_a.none(), "rows"_a, "update"_a, "table"_a.none(), "accumulation"_a.none());
}

void DefineFused(nb::module_& module) {
  module.def(
      "segment_grad_apply",
      [](std::string_view op, std::string_view combiner, nb::handle grad, nb::handle indices, nb::handle segment_ids,
         const nb::tuple& update, nb::handle table, SumOrder order) {
        Reader read{op};
        const SegmentCombiner combine = CombinerOf(op, combiner);
        const TensorView g = read.Values("grad", grad);
        const TensorView i = read.Ids("indices", indices);
        const TensorView s = read.Ids("segment_ids", segment_ids);
        const RowUpdate rule = read.Update(update);
        const MutableTensorView view = read.Table("table", table);
        RunUpdate(read, order,
                  [&](const Context& ctx) { return SparseSegmentGradApply(combine, g, i, s, rule, view, ctx); });
      },
      "op"_a, "combiner"_a, "grad"_a.none(), "indices"_a.none(), "segment_ids"_a.none(), "update"_a, "table"_a.none(),
      "accumulation"_a.none());
  module.def(
      "segment_grad_apply_with_plan",
      [](std::string_view op, std::string_view combiner, nb::handle grad, const SegmentPlan& plan,
         const nb::tuple& update, nb::handle table, SumOrder order) {
        Reader read{op};
        const SegmentCombiner combine = CombinerOf(op, combiner);
        const TensorView g = read.Values("grad", grad);
        const RowUpdate rule = read.Update(update);
        const MutableTensorView view = read.Table("table", table);
        RunUpdate(read, order,
                  [&](const Context& ctx) { return SparseSegmentGradApply(combine, g, plan, rule, view, ctx); });
      },
      "op"_a, "combiner"_a, "grad"_a.none(), "plan"_a, "update"_a, "table"_a.none(), "accumulation"_a.none());
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
