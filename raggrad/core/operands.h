// Checks that every operator makes of its operands. Internal to the library.
//
//   if (Status s = CheckOperands(op, {{"grad", grad}, {"indices", indices}}); !s.ok()) return s;
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>

#include "raggrad/core/context.h"
#include "raggrad/core/error_text.h"
#include "raggrad/core/tensor_view.h"

namespace raggrad {

struct Operand {
  std::string_view name;
  const TensorView& view;
};

// Whether the elements take less than 2^63 bytes: kernels count in bytes as well as in elements.
inline bool BytesCanBeCounted(int64_t elements, DType dtype) noexcept {
  int64_t bytes;
  return !__builtin_mul_overflow(elements, static_cast<int64_t>(DTypeSize(dtype)), &bytes);
}

// Whether an operand is an array that can be read. One without elements may have any other dimensions: kernels must not
// multiply them before they know that there is something to compute.
inline bool IsReadable(const TensorView& view) noexcept {
  const int64_t elements = view.shape.NumElements().value_or(-1);
  const auto address = reinterpret_cast<uintptr_t>(view.data);
  const bool there = address != 0 && (address & (DTypeAlignment(view.dtype) - 1)) == 0;
  return elements == 0 || (elements > 0 && there && BytesCanBeCounted(elements, view.dtype));
}

// The error for an operand that cannot be read. `name` is anything that AppendText takes.
template <class Name>
[[gnu::cold]] Status Unreadable(std::string_view op, const Name& name, const TensorView& view) noexcept {
  if (!view.shape.valid()) {
    return MakeError(Code::kResourceExhausted, op, ": no memory for the shape of an operand [", name, "]");
  }
  const std::optional<int64_t> elements = view.shape.NumElements();
  if (!elements) {
    return InvalidArgument(op, "Shape ", view.shape, " results in overflow when computing number of elements [", name,
                           ": expected dimensions whose product is in [0, 2^63)]");
  }
  if (view.data == nullptr) {
    return InvalidArgument(op, "an operand has no data [", name, ": expected ", *elements,
                           " elements, got a null pointer]");
  }
  if (!BytesCanBeCounted(*elements, view.dtype)) {
    return InvalidArgument(op, "an operand is larger than memory can be [", name,
                           ": expected less than 2^63 bytes, got ", *elements, " elements of ", view.dtype, "]");
  }
  const size_t alignment = DTypeAlignment(view.dtype);
  return InvalidArgument(op, "an operand is not aligned [", name, ": expected an address that is a multiple of ",
                         alignment, ", got one that is ", reinterpret_cast<uintptr_t>(view.data) % alignment,
                         " bytes past a multiple]");
}

[[gnu::cold]] inline Status OnAnotherDevice(std::string_view op, const Operand& operand,
                                            const Operand& first) noexcept {
  return InvalidArgument(op, "operands are on different devices [", operand.name, ": expected that of ", first.name,
                         " (", first.view.device, "), got ", operand.view.device, "]");
}

// Checks that every operand is an array that can be read, and that all are on one device. Comes after the checks of
// dtypes and before those of ranks and dimensions, which can then trust the shapes.
inline Status CheckOperands(std::string_view op, std::initializer_list<Operand> operands) noexcept {
  for (const auto& [name, view] : operands) {
    if (!IsReadable(view)) return Unreadable(op, name, view);
    if (view.device != operands.begin()->view.device) return OnAnotherDevice(op, {name, view}, *operands.begin());
  }
  return {};
}

// The same for an operand that is always in host memory, wherever the others are.
inline Status CheckHostOperand(std::string_view op, const Operand& operand) noexcept {
  if (Status s = CheckOperands(op, {operand}); !s.ok()) return s;
  if (operand.view.device.is_cpu()) return {};
  return InvalidArgument(op, "an operand is on the wrong device [", operand.name, ": expected host memory, got ",
                         operand.view.device, "]");
}

// The error of an operator that has no kernels for its operands' device, or cannot reach the kernels.
inline Status NoKernelForDevice(std::string_view op, Device device, std::string_view reason = {}) noexcept {
  return MakeError(Code::kUnimplemented, op,
                   ": there are no kernels for this device [expected operands in host memory, ", "got ", device,
                   reason.empty() ? "" : "; ", reason, "]");
}

}  // namespace raggrad
