// Checks of weights, and weights as the row loops read them. Internal to the family.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "raggrad/core/error_text.h"
#include "raggrad/core/operands.h"
#include "raggrad/core/scratch.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/convert.h"
#include "raggrad/ops/sparse_segment/segment_pooling.h"

namespace raggrad::sparse_segment {

// The weights of a pooling, or null.
inline const SegmentWeights* WeightsOf(const SegmentPooling& pooling) noexcept {
  return pooling.weights ? &*pooling.weights : nullptr;
}

// Checks weights, if there are any, for n ids of `rows`: data or grad, already checked.
inline Status CheckWeights(std::string_view op, const SegmentWeights* weights, int64_t n,
                           const Operand& rows) noexcept {
  if (weights == nullptr) return {};
  const TensorView& values = weights->values;
  if (Status s = CheckDType(op, rows.name, rows.view.dtype, FloatTypes{}); !s.ok()) return s;
  if (values.dtype != rows.view.dtype && values.dtype != DType::kFloat32) {
    return InvalidArgument(op, "weights have the wrong type [weights: expected float32 or that of ", rows.name, ", ",
                           rows.view.dtype, ", got ", values.dtype, "]");
  }
  if (Status s = CheckOperands(op, {rows, {"weights", values}}); !s.ok()) return s;
  if (values.rank() == 1 && values.dim(0) == n) return {};
  return InvalidArgument(op, "weights and indices should have same size [weights: expected shape [", n, "], got shape ",
                         values.shape, "]");
}

// The error for more ids than a plan can name the positions of.
inline Status CheckWeightedIds(std::string_view op, const SegmentWeights* weights, int64_t n) noexcept {
  if (weights == nullptr || n <= int64_t{UINT32_MAX}) return {};
  return MakeError(Code::kUnimplemented, op, ": too many ids for a gradient with weights [indices: expected at most ",
                   UINT32_MAX, " elements, got ", n, "]");
}

template <class A, class W>
A WidenWeight(W weight) noexcept {
  if constexpr (kIsShortFloat<W>) {
    return cpu::BaselineConvert::Widen(weight);
  } else {
    return weight;
  }
}

inline void NarrowWeight(float gradient, Half& out) noexcept { out = cpu::BaselineConvert::NarrowToHalf(gradient); }
inline void NarrowWeight(float gradient, BFloat16& out) noexcept {
  out = cpu::BaselineConvert::NarrowToBFloat16(gradient);
}
inline void NarrowWeight(double gradient, float& out) noexcept { out = static_cast<float>(gradient); }

// The types of weights for rows that are summed in A.
template <class A>
using WeightTypes =
    std::conditional_t<std::is_same_v<A, double>, TypeList<float, double>, TypeList<Half, BFloat16, float>>;

// Weights in the type of sums. Only weights of another type are copied.
template <class A>
class WideWeights {
 public:
  static Result<WideWeights> Make(const TensorView& values, const Context& ctx) noexcept {
    WideWeights wide;
    if (values.dtype == kDTypeOf<A>) {
      wide.values_ = values.As<A>();
      return wide;
    }
    const int64_t n = values.dim(0);
    Result<Scratch<A>> copy = Scratch<A>::Make(ctx, n);
    if (!copy.ok()) return copy.status();
    wide.copy_ = *std::move(copy);
    wide.values_ = wide.copy_.data();
    Executor& executor = ExecutorOf(ctx);
    const Status widened = Visit(WeightTypes<A>{}, values.dtype, [&]<class W>() -> Status {
      const W* const in = values.As<W>();
      A* const out = wide.copy_.data();
      return cpu::ForEachChunkUntilStopped(executor, cpu::SplitEvenly(executor, n, 1 << 14),
                                           [&](int64_t, int64_t begin, int64_t end) {
                                             for (int64_t i = begin; i < end; ++i) out[i] = WidenWeight<A>(in[i]);
                                           });
    });
    if (!widened.ok()) return widened;
    return wide;
  }
  const A* data() const noexcept { return values_; }

 private:
  const A* values_ = nullptr;
  Scratch<A> copy_;
};

}  // namespace raggrad::sparse_segment
