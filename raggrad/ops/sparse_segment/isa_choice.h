// The version of a function that was compiled for the instruction-set level of the call. Internal to the family.
//
//   const auto sum_rows = ChooseByIsa<SumRowsFunction<T, C>>(ctx, []<Isa I>() { return &SumRows<I, T, C>; });
#pragma once

#include "raggrad/core/context.h"
#include "raggrad/core/isa.h"

namespace raggrad::sparse_segment {

template <class Function, class F>
Result<Function> ChooseByIsa(const Context& ctx, const F& compiled_for) noexcept {
  const Result<Isa> isa = ChooseIsa(ctx.isa);
  if (!isa.ok()) return isa.status();
#if defined(__x86_64__)
  if (*isa == Isa::kX86V4) return Function{compiled_for.template operator()<Isa::kX86V4>()};
  if (*isa == Isa::kX86V3) return Function{compiled_for.template operator()<Isa::kX86V3>()};
  return Function{compiled_for.template operator()<Isa::kX86V1>()};
#else
  return Function{compiled_for.template operator()<Isa::kArmV8>()};
#endif
}

}  // namespace raggrad::sparse_segment
