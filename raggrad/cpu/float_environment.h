// The floating-point environment that everything is computed in, whatever the caller's is: rounding to nearest, no
// traps, float32 and float64 subnormals taken for zeros of their sign, as in TensorFlow's kernels. (half keeps its
// subnormals: conversions do not flush them.)
//
//   return InFloatEnvironment([&] { return Compute(problem, ctx); });
//
// It is set in two places, so that kernels need not think of it: around the call of a CPU backend (cuda/loader.h), and
// around every task that may run on another thread (cpu/chunks.h), since each thread has an environment of its own.
// Arithmetic outside of backends, in checks and messages, calls InFloatEnvironment itself.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace raggrad::cpu {

// The floating-point state of a thread: its modes, and the flags of exceptions it has seen.
struct FloatState {
#if defined(__x86_64__)
  // Flags (bits 0 to 5), denormals are zeros (6), masks of traps (7 to 12), rounding (13, 14), flush to zero (15). The
  // x87 unit has its own; nothing here uses it.
  uint32_t mxcsr;

  [[gnu::always_inline]] static FloatState Read() noexcept { return {_mm_getcsr()}; }
  [[gnu::always_inline]] void Write() const noexcept { _mm_setcsr(mxcsr); }
  // Keeps the flags: clearing those that the next operation raises again costs five times as much as the rest.
  [[gnu::always_inline]] FloatState ForComputing() const noexcept { return {(mxcsr & ~0xffc0U) | 0x9fc0U}; }
#elif defined(__aarch64__)
  // FPCR: FZ (bit 24) flushes operands and results, but not half (that is FZ16). All others are zero: rounding, traps,
  // alternative half (AHP), default NaN (DN), and what later versions add (FIZ, AH, NEP). FPSR: the flags.
  uint64_t fpcr;
  uint64_t fpsr;

  [[gnu::always_inline]] static FloatState Read() noexcept {
    FloatState state;
    asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(state.fpcr), "=r"(state.fpsr) : : "memory");
    return state;
  }
  [[gnu::always_inline]] void Write() const noexcept {
    asm volatile("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(fpcr), "r"(fpsr) : "memory");
  }
  [[gnu::always_inline]] FloatState ForComputing() const noexcept { return {uint64_t{1} << 24, fpsr}; }
#endif

  friend bool operator==(const FloatState&, const FloatState&) = default;
};

// Calls f() in that environment, then restores the thread's own, flags included. Costs 4 ns.
//
// Compilers move arithmetic on registers across instructions that change the environment, but not into or out of a
// function that they cannot see. So f is called by an address that is hidden from them.
template <class F>
auto InFloatEnvironment(const F& f) noexcept -> decltype(f()) {
  struct Scope {
    const FloatState found = FloatState::Read();
    Scope() noexcept { found.ForComputing().Write(); }
    ~Scope() { found.Write(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };
  auto* call = +[](const F& hidden) noexcept { return hidden(); };
  asm volatile("" : "+r"(call));
  const Scope scope;
  return call(f);
}

}  // namespace raggrad::cpu
