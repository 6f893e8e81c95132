// Updates whose rate lies in memory, for tests.
#pragma once

#include <variant>

#include "raggrad/ops/sparse_segment/row_update.h"

namespace raggrad::sparse_segment {

// The rate of the update's formula.
inline double RateNumber(const RowUpdate& update) {
  if (const auto* adam = std::get_if<Adam>(&update)) return RateOf(*adam);
  return std::visit([](const auto& rule) { return rule.learning_rate; }, update);
}

// The update with another rate, in memory. Its own must not be used any more.
inline RowUpdate WithRate(RowUpdate update, const TensorView& rate) {
  std::visit(
      [&](auto& rule) {
        rule.learning_rate = 99;
        rule.rate = rate;
      },
      update);
  return update;
}

}  // namespace raggrad::sparse_segment
