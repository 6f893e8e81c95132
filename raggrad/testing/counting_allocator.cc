#include "raggrad/testing/counting_allocator.h"

#include <string>
#include <string_view>

namespace raggrad::testing {

void ExpectEveryAllocationFailureIsReported(Context ctx, FunctionRef<Status(const Context&)> call, Allocator& source,
                                            Allocator* Context::*which) {
  for (int64_t fail_at = 0;; ++fail_at) {
    SCOPED_TRACE("request " + std::to_string(fail_at) + " fails");
    CountingAllocator allocator(fail_at, source);
    ctx.*which = &allocator;
    const Status status = call(ctx);
    if (allocator.requests() <= fail_at) {
      EXPECT_TRUE(status.ok()) << status.message();
      return;
    }
    ASSERT_EQ(status.code(), Code::kResourceExhausted) << status.message();
    const std::string_view name = status.message().substr(0, status.message().find(':'));
    ASSERT_TRUE(name.size() < status.message().size() && name.find_first_of("[(.") == name.npos)
        << "does not begin with the operator's name: " << status.message();
  }
}

}  // namespace raggrad::testing
