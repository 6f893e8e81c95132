#include "attributes.h"

#include "runtime.h"
#include "views.h"

namespace raggrad::python {

int64_t ReadInt(nb::handle value, std::string_view op, std::string_view name) {
  const nb::object number = nb::steal(PyNumber_Index(value.ptr()));
  if (!number.is_valid()) {
    PyErr_Clear();
    RaiseInvalid(op, ": ", name, ": expected an integer, got ", TypeName(value));
  }
  int overflow = 0;
  const int64_t result = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  return overflow == 0 ? result : overflow > 0 ? INT64_MAX : INT64_MIN;
}

std::string ReadText(nb::handle value, std::string_view op, std::string_view name) {
  if (!nb::isinstance<nb::str>(value)) RaiseInvalid(op, ": ", name, ": expected a str, got ", TypeName(value));
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (text == nullptr) {  // half of a surrogate pair
    PyErr_Clear();
    RaiseInvalid(op, ": ", name, ": expected a str that UTF-8 has, got ", nb::repr(value).c_str());
  }
  return {text, static_cast<size_t>(size)};
}

bool ReadFlag(nb::handle value, std::string_view op, std::string_view name) {
  if (!nb::isinstance<nb::bool_>(value)) RaiseInvalid(op, ": ", name, ": expected a bool, got ", TypeName(value));
  return value.is(Py_True);
}

}  // namespace raggrad::python
