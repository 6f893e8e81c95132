// One tensor from many pieces of device memory, by one kernel however many they are. Internal to the library.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "raggrad/core/context.h"
#include "raggrad/core/piece.h"
#include "raggrad/core/result.h"
#include "raggrad/core/tensor.h"

namespace raggrad::cuda {

// A reference to a callable that describes pieces: write(begin, end, pieces) puts those from `begin` to `end` into
// `pieces`, as if the first of them began at 0, and returns where the last ends; -1 if they cannot be described. It is
// called from several threads. The callable must outlive the reference.
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

  // Output `index` of an operator: `count` pieces, one behind the other, fill a tensor of `shape`. All have been
  // described when this returns, by tasks of `executor` if they are many, but need not have been copied. INTERNAL if
  // they cannot be described or do not fill the tensor. Not for strings.
  Result<Tensor> (*join)(int64_t count, PieceWriter write, Executor& executor, int index, DType dtype,
                         const Shape& shape, const Context& ctx) noexcept;
};

// The same for pieces that are described already.
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
