// Row splits: their check, and the sums they are made of. Internal to the family.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "raggrad/core/executor.h"
#include "raggrad/core/status.h"
#include "raggrad/core/tensor_view.h"

namespace raggrad::ragged_variant::on_cpu {

// Checks the numbers of a vector of splits that is not empty: the first is 0, none is smaller than the one before it,
// and the last is `last`, if that is given.
Status CheckSplits(std::string_view op, std::string_view argument, const TensorView& splits,
                   std::optional<int64_t> last, Executor& executor) noexcept;

// Replaces n sizes, the i-th at size(i), by where each begins if they follow one another. Returns where the last ends;
// nothing if that is 2^63 or more.
template <class Size>
std::optional<int64_t> SizesToBegins(int64_t n, const Size& size) noexcept {
  int64_t total = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t count = std::exchange(size(i), total);
    if (__builtin_add_overflow(total, count, &total)) return std::nullopt;
  }
  return total;
}

}  // namespace raggrad::ragged_variant::on_cpu
