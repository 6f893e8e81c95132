// Where a lane finds its columns of each row: addresses in the fewest instructions, since the sums execute them for
// every contribution and every row.
#pragma once

#include <cstdint>

namespace raggrad::sparse_segment::on_cuda {

// Keeps a value in a register. Otherwise the compiler computes it anew in every round of a loop, to save registers.
template <class V>
__device__ V Kept(V value) {
  if constexpr (sizeof(V) == 8) {
    asm("" : "+l"(value));
  } else {
    asm("" : "+r"(value));
  }
  return value;
}

// The same for an address in shared memory, which takes five instructions.
template <class T>
__device__ const T* KeptShared(const T* shared) {
  return static_cast<const T*>(__cvta_shared_to_generic(Kept(__cvta_generic_to_shared(shared))));
}

// Some neighbouring columns of all rows of a matrix in global memory.
template <class T>
class ColumnsOfRows {
 public:
  __device__ ColumnsOfRows(const T* matrix, int64_t width, int64_t column)
      : of_row0_(Kept(__cvta_generic_to_global(matrix + column))),
        row_bytes_(static_cast<uint32_t>(width * sizeof(T))),
        row_bytes_high_(static_cast<uint32_t>(static_cast<uint64_t>(width) * sizeof(T) >> 32)) {}

  // Those of one row. Two instructions: a product of 64 bits would take four.
  __device__ T* OfRow(uint32_t row) const {
    const uint64_t low = of_row0_ + uint64_t{row} * row_bytes_;
    const uint32_t high = static_cast<uint32_t>(low >> 32) + row * row_bytes_high_;
    return static_cast<T*>(__cvta_global_to_generic(uint64_t{high} << 32 | static_cast<uint32_t>(low)));
  }

 private:
  uint64_t of_row0_;
  uint32_t row_bytes_, row_bytes_high_;
};

}  // namespace raggrad::sparse_segment::on_cuda
