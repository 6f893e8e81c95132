// While it lives, float32 and float64 arithmetic on this thread treats subnormal operands and results as zeros of their
// sign, as TensorFlow's kernels do. Every task that adds or multiplies makes one: worker threads have their own mode.
// Conversions to and from half keep half's subnormals. Always inlined, as it is used in code compiled per instruction
// set.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace raggrad::cpu {

class ScopedFlushSubnormals {
 public:
  [[gnu::always_inline]] ScopedFlushSubnormals() noexcept : saved_(Read()) { Write(saved_ | kFlush); }
  [[gnu::always_inline]] ~ScopedFlushSubnormals() { Write(saved_); }
  ScopedFlushSubnormals(const ScopedFlushSubnormals&) = delete;
  ScopedFlushSubnormals& operator=(const ScopedFlushSubnormals&) = delete;

 private:
#if defined(__x86_64__)
  using Mode = uint32_t;
  static constexpr Mode kFlush = 0x8040;  // MXCSR: flush to zero (bit 15), denormals are zeros (bit 6)
  [[gnu::always_inline]] static Mode Read() noexcept { return _mm_getcsr(); }
  [[gnu::always_inline]] static void Write(Mode mode) noexcept {
    asm volatile("" : : : "memory");  // keeps loads and stores, and with them the arithmetic, on their side
    _mm_setcsr(mode);
    asm volatile("" : : : "memory");
  }
#elif defined(__aarch64__)
  using Mode = uint64_t;
  static constexpr Mode kFlush = uint64_t{1} << 24;  // FPCR.FZ: operands and results, not half (that is FZ16)
  [[gnu::always_inline]] static Mode Read() noexcept {
    Mode mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  // "memory" keeps loads and stores, and with them the arithmetic, on their side.
  [[gnu::always_inline]] static void Write(Mode mode) noexcept {
    asm volatile("msr fpcr, %0" : : "r"(mode) : "memory");
  }
#endif

  const Mode saved_;
};

}  // namespace raggrad::cpu
