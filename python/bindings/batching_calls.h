// The operators of a runtime: they read Python arguments, wait or call back, and make Python objects of the results.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

#include "py_runtime.h"

namespace raggrad::python {

namespace nb = nanobind;

// `done` is None if the thread waits for the result; otherwise done(value, error) is called later, exactly once.
nb::object UnbatchGrad(PyRuntime& self, nb::handle original_input, nb::handle batch_index, nb::handle grad,
                       nb::handle id, std::string container, std::string shared_name, nb::handle t,
                       nb::handle timeout_micros, nb::handle cancellation, bool strict, nb::handle done);

nb::object Unbatch(PyRuntime& self, nb::handle batched_tensor, nb::handle batch_index, nb::handle id,
                   nb::handle timeout_micros, std::string container, std::string shared_name, nb::handle t,
                   nb::handle wait_micros, nb::handle cancellation, nb::handle done);

nb::object Batch(PyRuntime& self, const nb::sequence& in_tensors, nb::handle num_batch_threads,
                 nb::handle max_batch_size, nb::handle batch_timeout_micros, nb::handle max_enqueued_batches,
                 const nb::sequence& allowed_batch_sizes, std::string container, std::string shared_name,
                 std::string batching_queue, nb::handle t, nb::handle timeout_micros, nb::handle cancellation,
                 nb::handle done);

// An integer attribute. A number beyond int64 becomes the nearest in int64, which the operator refuses as TensorFlow
// does.
int64_t ReadInt(nb::handle value, std::string_view op, std::string_view name);

}  // namespace raggrad::python
