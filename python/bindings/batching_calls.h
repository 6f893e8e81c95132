// The operators of a runtime: they read Python arguments, wait or call back, and make Python objects of the results.
#pragma once

#include <nanobind/nanobind.h>

#include "py_runtime.h"

namespace raggrad::python {

namespace nb = nanobind;

// `done` is None if the thread waits for the result; otherwise done(value, error) is called later, exactly once.
nb::object UnbatchGrad(PyRuntime& self, nb::handle original_input, nb::handle batch_index, nb::handle grad,
                       nb::handle id, nb::handle container, nb::handle shared_name, nb::handle t,
                       nb::handle timeout_micros, nb::handle cancellation, nb::handle strict, nb::handle done);

nb::object Unbatch(PyRuntime& self, nb::handle batched_tensor, nb::handle batch_index, nb::handle id,
                   nb::handle timeout_micros, nb::handle container, nb::handle shared_name, nb::handle t,
                   nb::handle wait_micros, nb::handle cancellation, nb::handle done);

nb::object Batch(PyRuntime& self, nb::handle in_tensors, nb::handle num_batch_threads, nb::handle max_batch_size,
                 nb::handle batch_timeout_micros, nb::handle max_enqueued_batches, nb::handle allowed_batch_sizes,
                 nb::handle container, nb::handle shared_name, nb::handle batching_queue, nb::handle t,
                 nb::handle timeout_micros, nb::handle cancellation, nb::handle done);

}  // namespace raggrad::python
