// Reads the operands of the segment functions of raggrad.ops.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "dtypes.h"
#include "raggrad/ops/sparse_segment/indexed_slices.h"
#include "runtime.h"
#include "tables.h"
#include "views.h"

namespace raggrad::python {

namespace nb = nanobind;

inline SegmentCombiner CombinerOf(std::string_view op, std::string_view name) {
  const Result<SegmentCombiner> combiner = CombinerByName(name);
  if (!combiner.ok()) RaiseInvalid(op, ": ", combiner.status().message());
  return *combiner;
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

  // weights: None, or the weights of the ids and what divides them, "weights" or "count".
  SegmentPooling Pooling(std::string_view combiner, nb::handle weights, DType rows) {
    const SegmentCombiner combine = CombinerOf(op, combiner);
    if (weights.is_none()) return combine;
    const nb::tuple parts = nb::borrow<nb::tuple>(weights);
    const DType literals = Contains(FloatTypes{}, rows) ? rows : DType::kFloat32;
    const bool by_count = nb::str(parts[1]).equal(nb::str("count"));
    return {combine,
            {ViewOf(parts[0], {.op = op, .name = "weights", .literal = literals}, keep),
             by_count ? WeightDivisor::kCount : WeightDivisor::kWeights}};
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
    if (rule.equal(nb::str("rowwise_adagrad"))) {
      return RowwiseAdagrad{.learning_rate = learning_rate,
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

}  // namespace raggrad::python
