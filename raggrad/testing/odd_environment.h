// Floating-point environments that callers may have set. Everything must give the same bits in them and leave them as
// they were.
#pragma once

#include <cfenv>
#include <string>

#include "raggrad/cpu/float_environment.h"

namespace raggrad::testing {

struct OddEnvironment {
  int rounding;  // FE_UPWARD, ...
  bool traps;    // every exception is a signal
  bool flushes;  // subnormals are zeros; on aarch64 also: alternative half, default NaN

  std::string name() const {
    return "rounding mode " + std::to_string(rounding) + (traps ? ", traps" : "") + (flushes ? ", flushes" : "");
  }
};

#if defined(RAGGRAD_SANITIZED)  // two are enough for sanitizers' findings, and all eight would take minutes
inline constexpr OddEnvironment kOddEnvironments[] = {{FE_UPWARD, true, true}, {FE_DOWNWARD, false, false}};
#else
inline constexpr OddEnvironment kOddEnvironments[] = {{FE_TONEAREST, true, false}, {FE_TONEAREST, false, true},
                                                      {FE_UPWARD, false, false},   {FE_UPWARD, true, true},
                                                      {FE_DOWNWARD, false, false}, {FE_DOWNWARD, true, false},
                                                      {FE_TOWARDZERO, true, true}, {FE_TOWARDZERO, false, false}};
#endif

// Guard: puts the thread into that environment while it lives, at first with no flag raised.
class ScopedEnvironment {
 public:
  explicit ScopedEnvironment(const OddEnvironment& odd) noexcept {
    std::fegetenv(&found_);
    std::feclearexcept(FE_ALL_EXCEPT);
    std::fesetround(odd.rounding);
    if (odd.traps) feenableexcept(FE_ALL_EXCEPT);
    cpu::FloatState state = cpu::FloatState::Read();
#if defined(__x86_64__)
    state.mxcsr &= odd.traps ? ~0x1fbfU : ~0x3fU;  // FE_ALL_EXCEPT lacks subnormal operands
    if (odd.flushes) state.mxcsr |= 0x8040U;
#elif defined(__aarch64__)
    if (odd.flushes) state.fpcr |= uint64_t{7} << 24;
#endif
    state.Write();
  }
  ~ScopedEnvironment() { std::fesetenv(&found_); }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  std::fenv_t found_;
};

}  // namespace raggrad::testing
