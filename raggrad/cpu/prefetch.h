// Asks for memory before its turn comes. Internal to the library.
#pragma once

#include <cstdint>

namespace raggrad::cpu {

// Asks for the cache line of values[place]. Any place will do, also one outside the array: nothing is read.
template <class E>
void Prefetch(const E* values, int64_t place) noexcept {
  const uintptr_t address = reinterpret_cast<uintptr_t>(values) + static_cast<uintptr_t>(place) * sizeof(E);
  __builtin_prefetch(reinterpret_cast<const void*>(address));
}

}  // namespace raggrad::cpu
