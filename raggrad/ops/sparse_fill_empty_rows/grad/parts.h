// The parts of numbers that are summed independently: one, or two of complex numbers. Internal to the family.
#pragma once

#include <complex>

namespace raggrad::sparse_fill_empty_rows {

template <class T>
struct PartsOf {
  using Part = T;
  static constexpr int kParts = 1;
};
template <class F>
struct PartsOf<std::complex<F>> {
  using Part = F;
  static constexpr int kParts = 2;
};

}  // namespace raggrad::sparse_fill_empty_rows
