// Runs a test under every setting whose results must agree: 1, 2 and 7 threads, every instruction set of the machine.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "raggrad/core/context.h"
#include "raggrad/core/isa.h"
#include "raggrad/core/parallel.h"

namespace raggrad::testing {

// A pool of that many workers that lives as long as the process: tests share it.
Parallel& Pool(int workers);

// f(const Context&) for each setting. The context's allocator is the default one.
template <class F>
void ForEachSetting(const F& f) {
  for (const int workers : {1, 2, 7}) {
    for (const Isa isa : AvailableIsas()) {
      SCOPED_TRACE(std::to_string(workers) + " threads, " + std::string(IsaName(isa)));
      Context ctx;
      ctx.parallel = &Pool(workers);
      ctx.isa = isa;
      f(static_cast<const Context&>(ctx));
    }
  }
}

}  // namespace raggrad::testing
