#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#define RAGGRAD_IMPORTS_NUMPY
#include "dtypes.h"
#include "numpy_api.h"
#include "operators.h"
#include "raggrad/core/isa.h"
#include "raggrad/core/version.h"
#include "runtime.h"
#include "tensor.h"

namespace raggrad::python {
namespace {

using namespace nb::literals;

std::string ChosenIsa() {
  const Result<Isa> isa = ChooseIsa({});
  if (!isa.ok()) Raise(isa.status());
  return std::string(IsaName(*isa));
}

nb::list Isas() {
  nb::list names;
  for (const Isa isa : AvailableIsas()) names.append(std::string(IsaName(isa)));
  return names;
}

void DefineSettings(nb::module_& module) {
  module.def(
      "version", [] { return std::string(Version()); }, "The version of the C++ library.");
  module.def("instruction_set", &ChosenIsa,
             "The instruction-set level that calls use. Raises if RAGGRAD_ISA names one that this machine lacks.");
  module.def("instruction_sets", &Isas, "The levels that this build has and this machine can run, best last.");
  // settings.py explains them.
  module.def("set_num_threads", &SetNumThreads, "threads"_a);
  module.def("get_num_threads", &GetNumThreads);
  module.def("set_memory_limit", &SetMemoryLimit, "bytes"_a.none());
  module.def("get_memory_limit", &GetMemoryLimit);
  module.def("set_memory_pool", &SetMemoryPool, "bytes"_a);
  module.def("get_memory_pool", &GetMemoryPool);
}

}  // namespace
}  // namespace raggrad::python

NB_MODULE(_core, module) {
  using namespace raggrad::python;
  if (_import_array() < 0) throw nb::python_error();
  ImportDTypes();
  nb::set_leak_warnings(false);  // arrays may be alive when the interpreter ends
  module.doc() = "raggrad's operators. Use raggrad.raw_ops.";
  DefineTensor(module);
  DefineSettings(module);
  DefineArrow(module);
  DefineBatching(module);
  DefineIndexedSlices(module);
  DefineRaggedVariant(module);
  DefineSparseFillEmptyRows(module);
  DefineSparseSegment(module);
  DefineSparseSlice(module);
}
