// For random tests: a seed, printed and settable, and the number of steps.
#pragma once

#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

#include "raggrad/testing/generators.h"

namespace raggrad::testing {

inline int64_t NumberFromEnvironment(const char* name, int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::stoll(text);
}

// RAGGRAD_TEST_SEED, or a new seed on every run. Printed, so that a failure can be repeated.
inline uint64_t TestSeed() {
  static const uint64_t seed = [] {
    const auto drawn = static_cast<int64_t>(std::random_device()());
    const auto given = static_cast<uint64_t>(NumberFromEnvironment("RAGGRAD_TEST_SEED", drawn));
    std::cout << "RAGGRAD_TEST_SEED=" << given << std::endl;
    return given;
  }();
  return seed;
}

// RAGGRAD_MODEL_STEPS, or 100,000.
inline int64_t ModelSteps() { return NumberFromEnvironment("RAGGRAD_MODEL_STEPS", 100'000); }

}  // namespace raggrad::testing
