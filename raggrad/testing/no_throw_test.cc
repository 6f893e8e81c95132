// This program's operator new fails on demand. Whatever request fails, no exception leaves an operator (all are
// noexcept: the process would end) and the status code is the one that plenty of memory gives. Only the text may be
// lost. Operators take their real memory from the context's allocator; what they ask operator new for is the text of
// errors and the dimensions of shapes of more than eight.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>

#include "raggrad/core/parallel.h"
#include "raggrad/testing/golden_operators.h"
#include "raggrad/testing/settings.h"

namespace {

enum class Failing { kNever, kOnce, kFromThenOn };

// Atomic, for worker threads allocate too. Constant-initialised: operator new is called before main().
constinit std::atomic<Failing> failing{Failing::kNever};
constinit std::atomic<int64_t> fail_at{0};
constinit std::atomic<int64_t> requests{0};

bool Fails() noexcept {
  const Failing when = failing.load();
  if (when == Failing::kNever) return false;
  const int64_t request = requests.fetch_add(1);
  return when == Failing::kOnce ? request == fail_at.load() : request >= fail_at.load();
}

void* Allocate(size_t bytes, size_t alignment = alignof(std::max_align_t)) noexcept {
  void* memory = nullptr;
  return Fails() || posix_memalign(&memory, alignment, bytes) != 0 ? nullptr : memory;
}

void* OrThrow(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// Out of line, or else g++ warns of a pointer that came from operator new and goes to free().
[[gnu::noinline]] void Free(void* memory) noexcept { std::free(memory); }

}  // namespace

// The standard library's other forms end up in these, but those of AddressSanitizer do not: so all that are in use.
void* operator new(size_t bytes) { return OrThrow(Allocate(bytes)); }
void* operator new[](size_t bytes) { return OrThrow(Allocate(bytes)); }
void* operator new(size_t bytes, const std::nothrow_t& /*tag*/) noexcept { return Allocate(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t& /*tag*/) noexcept { return Allocate(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return OrThrow(Allocate(bytes, static_cast<size_t>(alignment)));
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t /*bytes*/) noexcept { Free(memory); }
void operator delete[](void* memory, size_t /*bytes*/) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { Free(memory); }
void operator delete(void* memory, size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept { Free(memory); }

namespace raggrad::testing {
namespace {

// For as long as it lives, request `at` (counted from 0) fails, and with kFromThenOn all later ones.
class ScopedFailure {
 public:
  ScopedFailure(Failing when, int64_t at) noexcept {
    requests = 0;
    fail_at = at;
    failing = when;
  }
  ~ScopedFailure() { failing = Failing::kNever; }
};

// call() with request 0, 1, 2, ... failing until there are no more requests; check(its result) each time.
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
      if (requests <= at) break;
    }
  }
}

// A shape of more than eight dimensions needs the heap: an operator that cannot have it is out of memory.
bool HasLongShape(const GoldenCase& golden) {
  for (const auto& [name, value] : golden.inputs) {
    const Tensor* const tensor = std::get_if<Tensor>(&value);
    if (tensor != nullptr && (tensor->shape().rank() > 8 || (name == "dense_values_shape" && tensor->bytes() > 32))) {
      return true;
    }
  }
  return false;
}

const char* current_case = "";

class NoThrow : public ::testing::TestWithParam<std::filesystem::path> {
 protected:
  NoThrow() {
    std::set_terminate([] {
      std::fprintf(stderr, "an exception left a noexcept function in %s\n", current_case);
      std::abort();
    });
  }
};

TEST_P(NoThrow, CodesSurviveFailingRequests) {
  Context ctx;
  ctx.parallel = &Pool(2);
  ExactAllocator memory(size_t{1} << 30);
  ctx.allocator = &memory;
  int64_t most_requests = 0;
  for (const GoldenCase& golden : ReadGoldens(GetParam())) {
    SCOPED_TRACE(golden.place);
    const GoldenOperator call = FindGoldenOperator(golden.op);
    if (call == nullptr) continue;
    current_case = golden.place.c_str();
    const Code code = call(golden, ctx).status().code();
    const bool may_exhaust = HasLongShape(golden);
    const auto check = [&](Code got) {
      if (!may_exhaust || got != Code::kResourceExhausted) {
        EXPECT_EQ(got, code);
      }
      most_requests = std::max(most_requests, requests.load());
    };
    ForEachFailure([&] { return call(golden, ctx).status().code(); }, check);
  }
  EXPECT_GT(most_requests, 0) << "no case asked operator new for anything: is it replaced?";
}

INSTANTIATE_TEST_SUITE_P(Files, NoThrow, ::testing::ValuesIn(GoldenFiles(RAGGRAD_GOLDENS)),
                         [](const auto& file) { return file.param.stem().string(); });

TEST(NoThrowCore, AThreadPoolHasFewerThreadsOrIsNotMade) {
  ForEachFailure([] { return MakeThreadPool(3); },
                 [](const std::unique_ptr<Parallel>& pool) {
                   if (pool == nullptr) return;
                   std::atomic<int64_t> sum{0};
                   pool->Run(100, [&](int64_t task) { sum += task; });
                   EXPECT_EQ(sum, 4950);
                 });
}

TEST(NoThrowCore, AnInstructionSetThatIsNotThereIsStillNamed) {
  Context ctx;
  ctx.isa = Isa::kX86V4;
  const auto available = AvailableIsas();
  if (std::ranges::find(available, *ctx.isa) != available.end()) ctx.isa = Isa::kArmV8;
  ForEachFailure([&] { return ChooseIsa(ctx.isa).status().code(); },
                 [](Code code) { EXPECT_EQ(code, Code::kInvalidArgument); });
}

TEST(NoThrowCore, AStatusKeepsItsCode) {
  const std::string long_text(1000, 'x');
  ForEachFailure([&] { return Status(Code::kInternal, long_text).code(); },
                 [](Code code) { EXPECT_EQ(code, Code::kInternal); });
}

}  // namespace
}  // namespace raggrad::testing
