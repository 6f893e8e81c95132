// Context: everything a call takes from its surroundings. Make one, change what you like, pass it on.
//
//   Context ctx;                       // the heap, the default executor, TensorFlow's order of sums
//   ctx.allocator = &my_arena;
//   auto result = SparseSegmentMeanGradV2(grad, indices, segment_ids, table_rows, ctx);
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "raggrad/core/allocator.h"
#include "raggrad/core/executor.h"
#include "raggrad/core/isa.h"
#include "raggrad/core/result.h"
#include "raggrad/core/tensor.h"

#pragma GCC visibility push(default)
namespace raggrad {

// The order of floating-point sums. All give the same bits on every run, for any number of threads.
enum class Accumulation {
  kSequential,    // in the order of the input: TensorFlow's results on the CPU, bit for bit
  kFast,          // a fixed tree: other bits, a smaller error bound, and room for parallel sums
  kReproducible,  // exact sums of rounded terms: the same bits for every order of the input (core/sum_grid.h)
};

// Reads "sequential", "fast" or "reproducible". Any other name is INVALID_ARGUMENT, about an argument `accumulation`.
Result<Accumulation> AccumulationByName(std::string_view name) noexcept;

struct Context {
  Allocator* allocator = &DefaultAllocator();  // of host memory
  Allocator* device_allocator = nullptr;       // of the operands' GPU; null: the library's pool (cuda/cuda.h)
  Executor* executor = nullptr;                // null: DefaultExecutor()
  void* stream = nullptr;                      // a cudaStream_t of the operands' GPU; null: its default stream
  std::optional<Accumulation> accumulation;    // unset: kSequential on the CPU, kFast on a GPU
  std::optional<Isa> isa;                      // unset: RAGGRAD_ISA, or else the best the machine has
};

inline Executor& ExecutorOf(const Context& ctx) noexcept { return ctx.executor ? *ctx.executor : DefaultExecutor(); }

// Allocates an output in host memory, uninitialised. `extra_bytes` more bytes follow the elements (the characters of
// strings). INVALID_ARGUMENT if the shape has too many elements, RESOURCE_EXHAUSTED if there is no memory.
Result<Tensor> AllocateOutput(const Context& ctx, int index, DType dtype, Shape shape, size_t extra_bytes = 0) noexcept;

// The same from the given allocator, whose memory is on `device`.
Result<Tensor> AllocateOutput(Allocator& allocator, Device device, int index, DType dtype, Shape shape,
                              size_t extra_bytes = 0) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
