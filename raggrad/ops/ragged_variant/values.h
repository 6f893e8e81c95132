// Copies the values of elements, in host memory or on a GPU. Everything else, splits included, is in host memory, so
// only these copies depend on the device. Internal to the family.
#pragma once

#include <cstdint>
#include <string_view>

#include "raggrad/cpu/join.h"

namespace raggrad::ragged_variant::on_cpu {

inline constexpr int64_t kElementGrain = 2048;  // elements: some 10 us of looking at them

// Joins pieces that are on `device`; their list is in host memory.
Result<Tensor> Join(std::string_view op, Device device, const cpu::Joined& joined, const Context& ctx) noexcept;

// A copy of one tensor, on the device where it is.
Result<Tensor> Copy(std::string_view op, std::string_view argument, int output, const TensorView& view,
                    const Context& ctx) noexcept;

}  // namespace raggrad::ragged_variant::on_cpu
