// Gives programs that link failing_new.cc an operator new that fails on demand.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace raggrad::testing {

enum class Failing { kNever, kOnce, kFromThenOn };

// While it lives, request `at` (counted from 0) fails, and with kFromThenOn all later ones. One may live at a time.
class ScopedFailure {
 public:
  ScopedFailure(Failing when, int64_t at) noexcept;
  ~ScopedFailure();
  ScopedFailure(const ScopedFailure&) = delete;
  ScopedFailure& operator=(const ScopedFailure&) = delete;
};

// Number of calls of operator new during the life of the last ScopedFailure.
int64_t RequestsOfNew() noexcept;
// The bytes of the largest of them.
size_t LargestRequestOfNew() noexcept;

// Calls call() with request 0, 1, 2, ... failing until there are no more requests, and check(result) each time.
template <class Call, class Check>
void ForEachFailure(const Call& call, const Check& check) {
  for (const Failing when : {Failing::kOnce, Failing::kFromThenOn}) {
    for (int64_t at = 0;; ++at) {
      const auto result = [&] {
        const ScopedFailure failure(when, at);
        return call();
      }();
      SCOPED_TRACE("request " + std::to_string(at) + (when == Failing::kOnce ? " fails" : " and all later ones fail"));
      check(result);
      if (RequestsOfNew() <= at) break;
    }
  }
}

}  // namespace raggrad::testing
