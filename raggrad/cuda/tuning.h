// The numbers that were chosen for speed on a GPU, with the reason for each. Internal to the CUDA library.
//
// Results do not depend on any number here: a change makes calls faster or slower and leaves every bit as it was. Three
// kinds of constants stay beside the kernels that use them: those that fix the order of a sum, such as
// kContributionsPerGroup; limits of CUDA and of types; sizes that follow from the width of a warp. Kernels assert at
// compile time what they need of the numbers here.
//
// There is one Tuning for each architecture that was measured. Host and device code have to agree on it, so a build of
// the library uses one for all GPUs: kTuning, at the end.
#pragma once

#include <cstddef>
#include <cstdint>

namespace raggrad::cuda {

struct Tuning {
  int multiprocessors;         // of the GPU; it sizes grids whose blocks should all run at once
  int item_threads_per_block;  // of kernels in which each thread has one item and blocks share nothing

  // How a host thread waits for a report (call.cu): it looks at pinned memory all the time, and queries the stream now
  // and then. At last it blocks until all of the stream's work is done, also what comes behind the report.
  int await_microseconds_per_query;
  int await_max_microseconds;

  // Pinned buffers for descriptions of pieces (staging.cuh).
  size_t staging_min_buffer_bytes;
  size_t staging_max_idle_bytes;      // idle buffers above this are freed ...
  uint64_t staging_max_idle_calls;    // ... if that many calls have not used them
  int staging_max_unread_per_thread;  // buffers that the GPU has still to read; then the thread waits for the first

  // Joining pieces into one tensor (batched_copy.cu).
  int join_threads_per_block;
  int join_units_per_thread;         // units of 16 bytes, all in flight at once
  int64_t describe_pieces_per_run;   // a run is the task of one host thread
  int64_t describe_max_serial_runs;  // up to so many runs are described by the calling thread alone

  int cut_ids_per_thread;  // of the search for bags (bags/find_bags.cuh)

  // sparse_segment/plan: prepare checks and counts ids, sort orders them by row, find counts the rows.
  int prepare_threads_per_block;
  int prepare_ids_per_thread;  // all in flight at once
  int prepare_max_blocks_per_multiprocessor;
  int sort_threads_per_block;
  int sort_max_digit_bits;
  int sort_few_contributions_per_thread;   // if one tile of this size per multiprocessor holds all contributions
  int sort_many_contributions_per_thread;  // otherwise
  int sort_tiles_per_bundle;
  int sort_bundles_at_once;    // whose counts a thread loads together
  int sort_warps_at_once;      // whose counts a thread loads together
  int find_groups_per_block;   // a thread has one contribution of each in flight
  int find_counts_per_thread;  // in the scan over the groups' counts

  // sparse_segment/grad: sums of rows.
  int sum_rows_in_flight;          // rows of the gradient that a lane loads before it adds them
  int describe_rows_in_flight;     // the same where magnitudes of the gradient's rows are searched
  int spanning_threads_per_block;  // where those of rows that extend over several groups are searched
  int sum_max_lanes_per_team;
  int sum_blocks_per_multiprocessor;        // the compiler limits registers so that this many fit ...
  int sum_heavy_blocks_per_multiprocessor;  // ... or this many of kernels that need more
  int pad_blocks_per_multiprocessor;        // of item_threads_per_block threads, which fill what is left of an output
  int64_t grad_max_bytes_before_count;      // outputs up to this size are allocated before num_unique is known

  // sparse_segment/weights: factors of contributions.
  int factors_per_thread;  // all in flight at once
  int run_ids_per_thread;  // of kernels that sum over the ids of each segment

  // sparse_segment/forward: pooling of segments.
  int pool_threads_per_block;
  int pool_max_lanes_per_team;
  int64_t pool_long_segment_rows;  // segments from this length on are shared by a whole block
  int pool_weighted_rows_in_flight;
  int pool_exact_rows_in_flight;  // of reproducible sums

  // sparse_fill_empty_rows: the gather of the gradient.
  int gather_threads_per_block;
  int gather_entries_per_thread;             // all in flight at once
  unsigned exact_blocks_per_multiprocessor;  // of the second pass of reproducible sums

  // sparse_slice: marking the entries inside a box; the bounds of the box around the gradient's entries.
  int slice_threads_per_block;
  int64_t bounds_rows_per_block;
  int bounds_columns_per_block;  // for more than four columns
};

// H100 and H200. Times are from an H200 and the workloads of docs/gpu.md.
inline constexpr Tuning kHopper = {
    .multiprocessors = 132,
    .item_threads_per_block = 256,  // not measured against others; such kernels wait for memory

    .await_microseconds_per_query = 20,  // a query takes one; not measured against others
    // Then a thread should not keep its core busy. It was 100 queries with 1,000 looks each, less than 100 us on a fast
    // processor: forwards of segment-A then waited for their pooling, too, for 100 us.
    .await_max_microseconds = 2000,

    // Pinning takes some 100 us a MiB, so buffers that were used lately are kept. Limits not measured against others.
    .staging_min_buffer_bytes = size_t{64} << 10,  // some 4,000 pieces, as many as one thread describes
    .staging_max_idle_bytes = size_t{16} << 20,    // a million pieces
    .staging_max_idle_calls = 64,
    .staging_max_unread_per_thread = 4,

    // A block has 16 KiB of the result. Units stay in registers: the join took 62 us on ragged-A when they were in
    // local memory, 45 now. Neither number was measured against others.
    .join_threads_per_block = 256,
    .join_units_per_thread = 4,
    .describe_pieces_per_run = 2048,  // some 7 us of a thread; not measured against others
    .describe_max_serial_runs = 2,    // 14 us: waking a sleeping thread takes longer (40 us on a virtual machine)

    // With one id a thread each block's search of all offsets was most of the time: 28 us for 1.3 million ids of 65,536
    // bags, 16 with 8 ids.
    .cut_ids_per_thread = 8,

    // The kernel takes 16 us of the 160 of segment-A. Its numbers were not measured against others. Each block adds its
    // histograms to global ones, so there are only as many blocks as run at once.
    .prepare_threads_per_block = 512,
    .prepare_ids_per_thread = 4,
    .prepare_max_blocks_per_multiprocessor = 3,
    // With 10 bits two passes sort a million rows, where CUB makes three of 8 bits: 38 us instead of 79 on segment-A. A
    // block has one thread for each of the 1,024 digits.
    .sort_threads_per_block = 1024,
    .sort_max_digit_bits = 10,
    // Small tiles for up to 540,672 ids. Large ones, 80 KiB of shared memory, hold the 1.3 million ids of segment-A in
    // 128 tiles, which still run all at once. Not measured against others.
    .sort_few_contributions_per_thread = 4,
    .sort_many_contributions_per_thread = 10,
    // The 128 tiles are 8 bundles: a tile needs one round of loads within its bundle and one over the bundles before.
    // Not measured against others.
    .sort_tiles_per_bundle = 16,
    .sort_bundles_at_once = 8,
    .sort_warps_at_once = 16,     // half of a block's warps; not measured against others
    .find_groups_per_block = 8,   // not measured against others
    .find_counts_per_thread = 8,  // one round for 2 million ids; not measured against others

    // With 8 rows, registers leave room for a fifth fewer threads: 5 to 10 us slower on segment-A.
    .sum_rows_in_flight = 4,
    .describe_rows_in_flight = 4,       // 1 and 2 took as long on segment-A-zipf and -C
    .spanning_threads_per_block = 128,  // 64 and 256 took as long there; a warp for a group took 17 to 24 us
    // 64 columns of float32, blocks of 256 threads. With 32 lanes and blocks of 512 segment-B took 0.351 instead of
    // 0.312.
    .sum_max_lanes_per_team = 16,
    // 48 registers a thread. With 64 and 4 blocks reproducible sums of bfloat16 took 2 to 4 us longer on segment-A;
    // with 40 and 6 others took as long.
    .sum_blocks_per_multiprocessor = 5,
    // With 5, reproducible sums of double took longer, 0.412 ms instead of 0.364 on segment-A-zipf, and Adam's update
    // from a gradient 0.185 instead of 0.167: not all of their 60 to 64 registers were left, and memory took their
    // place. Those of float are left since rows that extend over groups are copied to shared memory by one thread.
    .sum_heavy_blocks_per_multiprocessor = 4,
    .pad_blocks_per_multiprocessor = 8,  // all threads that fit
    // Sums that need not wait for num_unique save 10 us: 0.060 to 0.050 ms on segment-D. The output keeps memory for
    // all rows that it could have had, so the limit is low.
    .grad_max_bytes_before_count = 4 << 20,

    .factors_per_thread = 4,  // with 1 factors of 1.3 million ids took 10 us instead of 9; look-ups 17 with both
    .run_ids_per_thread = 8,  // the blocks of a million ids run all at once

    // Not measured against others: docs/gpu.md has no workload of the forwards.
    .pool_threads_per_block = 256,
    .pool_max_lanes_per_team = 32,
    .pool_long_segment_rows = 512,
    .pool_weighted_rows_in_flight = 8,
    .pool_exact_rows_in_flight = 4,

    .gather_threads_per_block = 256,       // not measured against others
    .gather_entries_per_thread = 4,        // not measured against others
    .exact_blocks_per_multiprocessor = 8,  // as many threads as fit; not measured against others

    .slice_threads_per_block = 256,  // four entries of a tile in flight for each thread; not measured against others
    .bounds_rows_per_block = 8192,   // enough to pay for a block's atomics, few enough to keep the GPU busy
    .bounds_columns_per_block = 8,   // 16 bounds in registers; not measured against others
};

// The only place that chooses. All architectures use Hopper's figures until another one is measured.
inline constexpr Tuning kTuning = kHopper;

}  // namespace raggrad::cuda
