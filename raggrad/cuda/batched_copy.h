// Joins pieces of device memory into one tensor, with one kernel for any number of pieces. Internal to the library.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "raggrad/core/context.h"
#include "raggrad/core/piece.h"
#include "raggrad/core/result.h"
#include "raggrad/core/tensor.h"

namespace raggrad::cuda {

// A reference to a callable that describes pieces. write(begin, end, pieces) describes pieces [begin, end), with
// positions relative to the first of them, and returns the end of the last; -1 if they cannot be described. Several
// threads call it at once. The callable must outlive the reference.
class PieceWriter {
 public:
  template <class F>
  requires(!std::is_same_v<F, PieceWriter>) PieceWriter(const F& write)
  noexcept  // NOLINT: implicit, so that a lambda can be passed
      : object_(&write), call_([](const void* object, int64_t begin, int64_t end, Piece* pieces) -> int64_t {
          return (*static_cast<const F*>(object))(begin, end, pieces);
        }) {}

  int64_t operator()(int64_t begin, int64_t end, Piece* pieces) const { return call_(object_, begin, end, pieces); }

 private:
  const void* object_;
  int64_t (*call_)(const void*, int64_t, int64_t, Piece*);
};

struct BatchedCopy {
  static constexpr char kSymbol[] = "raggrad_cuda_batched_copy";

  // Allocates output `index` of an operator and fills it with `count` pieces, one after the other. Tasks of `executor`
  // describe the pieces if there are many. All are described when this returns, but the copy may still be queued.
  // INTERNAL if they cannot be described or do not fill the tensor. Not for strings.
  Result<Tensor> (*join)(int64_t count, PieceWriter write, Executor& executor, int index, DType dtype,
                         const Shape& shape, const Context& ctx) noexcept;
};

// The same for pieces that are already described.
inline Result<Tensor> JoinListed(const BatchedCopy& kernels, std::span<const Piece> list, int index, DType dtype,
                                 const Shape& shape, const Context& ctx) noexcept {
  const auto count = std::ssize(list);
  const auto begin_of = [&](int64_t i) {
    return i < count ? list[static_cast<size_t>(i)].begin : shape.NumElements().value_or(0);
  };
  const auto write = [&](int64_t begin, int64_t end, Piece* pieces) {
    for (int64_t i = begin; i < end; ++i) {
      pieces[i - begin] = {list[static_cast<size_t>(i)].data, begin_of(i) - begin_of(begin)};
    }
    return begin_of(end) - begin_of(begin);
  };
  return kernels.join(count, write, SerialExecutor(), index, dtype, shape, ctx);
}

}  // namespace raggrad::cuda
