// The operands and the sink of sums of rows, and the functions that prepare and queue the sums.
#pragma once

#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_segment/grad/column_sums.cuh"
#include "raggrad/ops/sparse_segment/grad/magnitudes.cuh"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::sparse_segment::on_cuda {

// Contributions of a tile. Defines results, as kContributionsPerGroup does: both fix the order of sums.
inline constexpr int kTile = 32;
inline constexpr int kTiles = kContributionsPerGroup / kTile;

inline constexpr int kBatch = cuda::kTuning.sum_rows_in_flight;
template <class T>
inline constexpr int kMaxLanes = cuda::kTuning.sum_max_lanes_per_team*(std::is_same_v<T, double> ? 2 : 1);
static_assert(kTile % kBatch == 0, "batches do not go over the end of a tile");
static_assert(kContributionsPerGroup % (kTiles * kMaxLanes<double>) == 0,
              "each thread loads equally many contributions");

// Operands and sink of the sums.
template <class T>
struct SumJob {
  const T* grad;  // [segments, width]
  int64_t width;
  const Contribution* contributions;  // [n], sorted by row
  int64_t n;
  const uint32_t* unique_before;  // [groups + 1]: unique rows that begin before each group
  const uint32_t* counts;         // ids per segment; null if contributions are not scaled
  SegmentCombiner combiner;
  const SumType<T>* factors;  // [n]: of each contribution; null without weights
  void* carries;              // [groups, kParts, width] Parts: a group's sum for the row that began before it
  void* tails;  // [groups, kParts, width] Parts: its sum for the row that begins in it and extends into the next
  // Only for kReproducible: the rows of the gradient; for each group, the row that begins in it and extends into the
  // next, and the group where the row of its first contribution began. The last two are null if there is one group.
  SegmentRow<SumType<T>>* segment_rows;  // [segments]
  SpanningRow<SumType<T>>* spanning;     // [groups]
  uint32_t* began_in;                    // [groups]
  RowSink<T> sink;

  // The factor of contributions of that segment, if they have none of their own.
  __device__ SumType<T> SegmentFactor(uint32_t segment) const {
    return FactorOfCount(counts != nullptr ? counts[segment] : 0);
  }
  // The same for a segment of `count` ids, which is not read if nothing is scaled. Computed in double and rounded once.
  __device__ SumType<T> FactorOfCount(uint32_t count) const {
    if (counts == nullptr) return 1;
    if constexpr (std::is_same_v<SumType<T>, float>) {
      // In float the same bits, and several times as fast: 1 / count is never so close to the middle of two floats
      // that double could not tell.
      constexpr uint32_t kExact = 1U << 24;  // counts up to this are floats
      if (combiner == SegmentCombiner::kMean && count <= kExact) return 1.0F / static_cast<float>(count);
    }
    return static_cast<SumType<T>>(1.0 / (combiner == SegmentCombiner::kMean ? double(count) : sqrt(double(count))));
  }
  // The factor of contribution i, which is of that segment.
  __device__ SumType<T> Factor(int64_t i, uint32_t segment) const {
    return factors != nullptr ? factors[i] : SegmentFactor(segment);
  }
  // The same and, for kReproducible, magnitudes of the contribution. row: segment_rows[segment].
  __device__ SegmentRow<SumType<T>> Described(int64_t i, uint32_t segment, SegmentRow<SumType<T>> row) const {
    if (factors != nullptr) {
      row.factor = factors[i];
      row.largest = LargestProduct(grad + segment * width, width, row.largest, row.factor);
    }
    return row;
  }
};

// Memory that sums need. For kReproducible also queues the search for magnitudes. Sets pointers of the job. All of it
// depends on the plan and the gradient alone, so it can be queued before the number of unique rows is known. n > 0.
// read_early: the plan is queued in this call, so the gradient may be read while that is made.
// Memory: two rows of sums for each group with kFast. kReproducible: two rows of doubles (float64: four) and 12 bytes
// (float64: 20) for each group, and two values for each of num_segments segments.
template <class T>
Result<Scratch<char>> PrepareSums(const cuda::Call& call, SumJob<T>& job, Accumulation accumulation,
                                  int64_t num_segments, bool read_early) noexcept;

// Queues the sums of all rows of a prepared job into its sink. kUpdate: the sink updates a table, instead of storing.
template <class T, bool kUpdate>
Status SumRows(const cuda::Call& call, const SumJob<T>& job, Accumulation accumulation) noexcept;

// The same for kReproducible.
template <class T, bool kUpdate>
Status SumRowsReproducibly(const cuda::Call& call, const SumJob<T>& job) noexcept;

}  // namespace raggrad::sparse_segment::on_cuda
