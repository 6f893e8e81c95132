// The instruction-set levels that row loops are compiled for. The library picks one at run time.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "raggrad/core/result.h"

#pragma GCC visibility push(default)
namespace raggrad {

enum class Isa {
  kX86V1 = 0,  // x86-64: SSE2
  kX86V3 = 1,  // x86-64-v3: AVX2, F16C
  kX86V4 = 2,  // x86-64-v4: AVX-512 F, BW, CD, DQ, VL
  kArmV8 = 3,  // armv8-a: NEON
};

template <Isa... kLevels>
struct IsaList {};

// The levels that this build has. Every machine it runs on has the first.
#if defined(__x86_64__)
inline constexpr Isa kBaselineIsa = Isa::kX86V1;
#if defined(RAGGRAD_BASELINE_ONLY)
using IsaLevels = IsaList<kBaselineIsa>;
#else
using IsaLevels = IsaList<Isa::kX86V1, Isa::kX86V3, Isa::kX86V4>;
#endif
#else
using IsaLevels = IsaList<Isa::kArmV8>;
inline constexpr Isa kBaselineIsa = Isa::kArmV8;
#endif

// "x86-64", "x86-64-v3", "x86-64-v4", "armv8-a"
std::string_view IsaName(Isa isa) noexcept;

// Levels that this build has and this machine can run, best last.
std::span<const Isa> AvailableIsas() noexcept;

// The level that calls use: `requested`, or else the one RAGGRAD_ISA names, or else the best. INVALID_ARGUMENT if the
// machine does not have it. The environment is read once.
Result<Isa> ChooseIsa(const std::optional<Isa>& requested) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
