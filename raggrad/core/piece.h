// Piece: a part of a tensor that is joined from several. Internal to the library.
#pragma once

#include <cstdint>

namespace raggrad {

// Values of a tensor that come from one place.
struct alignas(16) Piece {
  const void* data;  // null: the values are zeros, or empty strings
  int64_t begin;     // where they begin in the tensor, counted in values; they end where the next piece begins
};

}  // namespace raggrad
