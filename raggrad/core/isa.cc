#include "raggrad/core/isa.h"

#include <array>
#include <cstdlib>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "raggrad/core/error_text.h"
#include "raggrad/core/first_use.h"

namespace raggrad {
namespace {

template <Isa... kLevels>
constexpr std::array<Isa, sizeof...(kLevels)> ToArray(IsaList<kLevels...>) noexcept {
  return {kLevels...};
}
constexpr auto kBuilt = ToArray(IsaLevels{});

#if defined(__x86_64__)
// clang 14's __builtin_cpu_supports does not know F16C.
bool HasF16c() noexcept {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool Supported(Isa isa) noexcept {
  switch (isa) {
    case Isa::kX86V1:
      return true;
    case Isa::kX86V3:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
             __builtin_cpu_supports("bmi2") && HasF16c();
    case Isa::kX86V4:
      return Supported(Isa::kX86V3) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
    case Isa::kArmV8:
      return false;
  }
  return false;
}
#elif defined(__aarch64__)
bool Supported(Isa isa) noexcept { return isa == Isa::kArmV8; }
#else
#error "raggrad is built for x86-64 and aarch64"
#endif

struct Levels {
  Isa isas[std::size(kBuilt)];
  size_t count = 0;
};

// Levels are ordered: a machine that lacks one has none above it.
Levels Detect() noexcept {
  Levels levels;
  for (const Isa isa : kBuilt) {
    if (!Supported(isa)) break;
    levels.isas[levels.count++] = isa;
  }
  return levels;
}

Status Unavailable(std::string_view name) noexcept {
  try {
    std::string available;
    for (const Isa isa : AvailableIsas()) available.append(available.empty() ? "" : ", ").append(IsaName(isa));
    return MakeError(Code::kInvalidArgument, "instruction set '", name, "' is not available; expected one of ",
                     available);
  } catch (const std::bad_alloc&) {
    return {Code::kInvalidArgument, {}};
  }
}

Result<Isa> FromEnvironment() noexcept {
  const char* name = std::getenv("RAGGRAD_ISA");
  if (name == nullptr || *name == '\0') return AvailableIsas().back();
  for (const Isa isa : AvailableIsas()) {
    if (IsaName(isa) == name) return isa;
  }
  return MakeError(Code::kInvalidArgument, "RAGGRAD_ISA: ", Unavailable(name).message());
}

}  // namespace

std::string_view IsaName(Isa isa) noexcept {
  switch (isa) {
    case Isa::kX86V1:
      return "x86-64";
    case Isa::kX86V3:
      return "x86-64-v3";
    case Isa::kX86V4:
      return "x86-64-v4";
    case Isa::kArmV8:
      return "armv8-a";
  }
  return "unknown";
}

std::span<const Isa> AvailableIsas() noexcept {
  static constinit FirstUse<Levels> detected;
  const Levels& levels = detected.Get(Detect);
  return {levels.isas, levels.count};
}

Result<Isa> ChooseIsa(const std::optional<Isa>& requested) noexcept {
  if (requested) {
    for (const Isa isa : AvailableIsas()) {
      if (isa == *requested) return isa;
    }
    return Unavailable(IsaName(*requested));
  }
  static constinit FirstUse<Result<Isa>> chosen;
  return chosen.Get(FromEnvironment);
}

}  // namespace raggrad
