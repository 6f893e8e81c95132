// The end of the row loop of an update: one optimizer step on a strip of a table row. Compiled once per level.
#pragma once

#include <cstdint>

#include "raggrad/core/isa.h"

namespace raggrad::sparse_segment {

enum class UpdateRule { kSgd, kAdagrad, kAdam };

// A: float or double, the type of sums and states. row_update.h has the formulas.
template <class A>
struct UpdateJob {
  void* table;  // [rows, width]
  int64_t width;
  A rate;
  A epsilon;
  A gain1;    // 1 - beta1
  A gain2;    // 1 - beta2
  A* state1;  // Adagrad's sums, Adam's m
  A* state2;  // Adam's v
  void (*update)(const UpdateJob& job, int64_t row, int64_t column, int64_t columns, const A* gradient) noexcept;
  void (*prefetch)(const UpdateJob& job, int64_t row, int64_t column, int64_t columns) noexcept;
};

// For UpdateJob::update and ::prefetch: the table has elements of type T. The floating-point mode is the caller's.
template <Isa I, class T, UpdateRule kRule, class A>
void UpdateRow(const UpdateJob<A>& job, int64_t row, int64_t column, int64_t columns, const A* gradient) noexcept;
template <Isa I, class T, UpdateRule kRule, class A>
void PrefetchForUpdate(const UpdateJob<A>& job, int64_t row, int64_t column, int64_t columns) noexcept;

}  // namespace raggrad::sparse_segment
