// Makes every request to operator new fail in turn: no exception may leave an operator (all are noexcept: the process
// would end), and the status code must be the one that plenty of memory gives. Only the text may be lost. Operators
// take their working memory from the context's allocator; operator new only serves the text of errors and the
// dimensions of long shapes.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "raggrad/core/error_text.h"
#include "raggrad/core/executor.h"
#include "raggrad/testing/failing_new.h"
#include "raggrad/testing/golden_operators.h"
#include "raggrad/testing/settings.h"

namespace raggrad::testing {
namespace {

using ::testing::AnyOf;

// A long shape needs the heap: an operator that cannot have it answers RESOURCE_EXHAUSTED.
bool HasLongShape(const GoldenCase& golden) {
  for (const auto& [name, value] : golden.inputs) {
    const Tensor* const tensor = std::get_if<Tensor>(&value);
    if (tensor != nullptr && (tensor->shape().rank() > 8 || (name == "dense_values_shape" && tensor->bytes() > 32))) {
      return true;
    }
  }
  return false;
}

class IgnoredOutputs final : public GoldenOutputs {
  void Add(std::string_view /*name*/, const GoldenView& /*output*/) override {}
};

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
  ctx.executor = &SharedExecutor(2);
  ExactAllocator memory(size_t{1} << 30);
  ctx.allocator = &memory;
  int64_t most_requests = 0;
  for (const GoldenCase& golden : ReadGoldens(GetParam())) {
    SCOPED_TRACE(golden.place);
    const GoldenOperator call = FindGoldenOperator(golden.op);
    if (call == nullptr) continue;
    current_case = golden.place.c_str();
    IgnoredOutputs ignored;
    const Code code = call(golden, ctx, ignored).code();
    const bool may_exhaust = HasLongShape(golden);
    const auto check = [&](Code got) {
      if (!may_exhaust || got != Code::kResourceExhausted) {
        EXPECT_EQ(got, code);
      }
      most_requests = std::max(most_requests, RequestsOfNew());
    };
    ForEachFailure([&] { return call(golden, ctx, ignored).code(); }, check);
  }
  EXPECT_GT(most_requests, 0) << "no case asked operator new for anything: is it replaced?";
}

INSTANTIATE_TEST_SUITE_P(Files, NoThrow, ::testing::ValuesIn(GoldenFiles(RAGGRAD_GOLDENS)),
                         [](const auto& file) { return file.param.stem().string(); });

TEST(NoThrowCore, AThreadPoolHasFewerThreadsOrIsNotMade) {
  ForEachFailure([] { return MakeThreadPool(3); },
                 [](const std::unique_ptr<Executor>& pool) {
                   if (pool == nullptr) return;
                   std::atomic<int64_t> sum{0};
                   pool->Run(100, [&](int64_t task) { sum += task; });
                   EXPECT_EQ(sum, 4950);
                 });
}

TEST(NoThrowCore, AMissingInstructionSetIsReported) {
  Context ctx;
  ctx.isa = Isa::kX86V4;
  const auto available = AvailableIsas();
  if (std::ranges::find(available, *ctx.isa) != available.end()) ctx.isa = Isa::kArmV8;
  ForEachFailure([&] { return ChooseIsa(ctx.isa).status().code(); },
                 [](Code code) { EXPECT_EQ(code, Code::kInvalidArgument); });
}

TEST(NoThrowCore, AStatusKeepsItsCodeAndSaysWhyItHasNoText) {
  const std::string long_text(1000, 'x');
  const auto check = [&](const Status& status) {
    EXPECT_EQ(status.code(), Code::kInternal);
    EXPECT_THAT(std::string(status.message()), AnyOf(long_text, "(no memory left for the message)"));
  };
  ForEachFailure([&] { return Status(Code::kInternal, long_text); }, check);
  ForEachFailure([&] { return MakeError(Code::kInternal, std::string_view(long_text)); }, check);
}

}  // namespace
}  // namespace raggrad::testing
