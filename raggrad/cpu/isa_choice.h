// Functions that are compiled once per instruction-set level, as one struct of function pointers per level.
//
//   // the header: the struct, and a function that names the struct of a level
//   using SumLoops = PerType<SumLoopsOf, FloatTypes>;
//   template <Isa I> const SumLoops& SumLoopsFor() noexcept;
//   // the source that is compiled per level: its only instance
//   template const SumLoops& SumLoopsFor<RAGGRAD_TARGET_ISA>() noexcept;
//   // the caller
//   const Result<const SumLoops*> loops = ChooseByIsa(ctx, []<Isa I>() { return &SumLoopsFor<I>(); });
//   (*loops)->of<float>().sum(job, ...);
#pragma once

#include <utility>

#include "raggrad/core/context.h"
#include "raggrad/core/dtype.h"
#include "raggrad/core/isa.h"

namespace raggrad::cpu {

// Has an Entry<T> for each type of the list.
template <template <class> class Entry, class List>
struct PerType;
template <template <class> class Entry, class... Ts>
struct PerType<Entry, TypeList<Ts...>> : Entry<Ts>... {
  template <class T>
  const Entry<T>& of() const noexcept {
    return *this;
  }
};

// Returns of_level<I>() for the level I that the call uses.
template <class F>
auto ChooseByIsa(const Context& ctx, const F& of_level) noexcept {
  using Chosen = decltype(of_level.template operator()<kBaselineIsa>());
  const Result<Isa> isa = ChooseIsa(ctx.isa);
  if (!isa.ok()) return Result<Chosen>(isa.status());
  Chosen chosen = nullptr;
  [&]<Isa... kLevels>(IsaList<kLevels...>) {
    ((*isa == kLevels ? void(chosen = of_level.template operator()<kLevels>()) : void()), ...);
  }
  (IsaLevels{});
  return Result<Chosen>(chosen);
}

}  // namespace raggrad::cpu
