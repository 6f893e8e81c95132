// Attributes of operators: single numbers, names and flags, read as Python gives them. A value of another type raises
// INVALID_ARGUMENT, with operator and attribute.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace raggrad::python {

namespace nb = nanobind;

// A number beyond int64 becomes the nearest in int64, which the operator refuses as TensorFlow does.
int64_t ReadInt(nb::handle value, std::string_view op, std::string_view name);

std::string ReadText(nb::handle value, std::string_view op, std::string_view name);

bool ReadFlag(nb::handle value, std::string_view op, std::string_view name);

}  // namespace raggrad::python
