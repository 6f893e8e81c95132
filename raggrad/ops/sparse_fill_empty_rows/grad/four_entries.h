// Separates four entries of an ascending map at once, with a vector shuffle. Internal to the CPU backend.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace raggrad::sparse_fill_empty_rows {

// The element size that FourEntries exists for, or 0. SSE2, the least that x86-64 has, lacks the shuffle.
#if defined(__aarch64__)
inline constexpr size_t kFourEntriesBytes = 4;
#else
inline constexpr size_t kFourEntriesBytes = 0;
#endif

#if defined(__aarch64__)
// Entry a + 8 * b + 64 * c has the byte positions of the first four elements, of 4 bytes each, among 8 neighbours
// without a, b and c.
inline constexpr auto kOthersOfEight = [] {
  std::array<std::array<uint8_t, 16>, 512> table{};
  for (size_t named = 0; named < table.size(); ++named) {
    size_t byte = 0;
    for (size_t place = 0; place < 8 && byte < 16; ++place) {
      if (place == named % 8 || place == named / 8 % 8 || place == named / 64) continue;
      for (size_t b = 0; b < 4; ++b) table[named][byte++] = static_cast<uint8_t>(4 * place + b);
    }
  }
  return table;
}();

// If the places map[0..4) ascend within [base, base + 8), copies their values to d_values and the first four of the
// other values to `others`, and returns the place behind the last. The caller needs only the others before place
// map[3]. Otherwise returns 0 and writes nothing. Reads grad[base, base + 8). It is fast because it stores once per
// stream: stores that alternate between two places take a cycle each.
template <class E>
[[gnu::always_inline]] inline int64_t FourEntries(const int64_t* map, int64_t base, const E* grad, E* d_values,
                                                  E* others) noexcept {
  static_assert(sizeof(E) == kFourEntriesBytes);
  const int64_t last = map[3];
  const auto from_base = [base](int64_t place) { return static_cast<uint64_t>(place) - static_cast<uint64_t>(base); };
  const uint64_t a = from_base(map[0]);
  const uint64_t b = from_base(map[1]);
  const uint64_t c = from_base(map[2]);
  const uint64_t d = from_base(last);
  if (!(a < b && b < c && c < d && d < 8)) [[unlikely]]
    return 0;
  const E* const places = grad + base;
  const E at_a = places[a], at_b = places[b], at_c = places[c], at_d = places[d];
  const uint8x16x2_t all = vld1q_u8_x2(reinterpret_cast<const uint8_t*>(places));
  const uint8x16_t unnamed = vqtbl2q_u8(all, vld1q_u8(kOthersOfEight[a + 8 * (b + 8 * c)].data()));
  d_values[0] = at_a;
  d_values[1] = at_b;
  d_values[2] = at_c;
  d_values[3] = at_d;
  vst1q_u8(reinterpret_cast<uint8_t*>(others), unnamed);
  return last + 1;
}
#endif

}  // namespace raggrad::sparse_fill_empty_rows
