// EXPECT_THAT(status_or_result, StatusIs(Code::kInvalidArgument, HasSubstr("indices[3]")));
#pragma once

#include <gmock/gmock.h>

#include <string>
#include <utility>

#include "raggrad/core/error_text.h"
#include "raggrad/core/status.h"

namespace raggrad::testing {

MATCHER(IsOk, "is OK") {
  *result_listener << CodeName(StatusOf(arg).code()) << ": " << StatusOf(arg).message();
  return StatusOf(arg).ok();
}

MATCHER_P2(StatusIs, code, message,
           std::string("has code ") + std::string(CodeName(code)) + " and a message that matches") {
  const Status& status = StatusOf(arg);
  *result_listener << CodeName(status.code()) << ": " << status.message();
  return status.code() == code && ::testing::Matches(message)(std::string(status.message()));
}

// An INVALID_ARGUMENT whose message contains `text`.
inline auto IsInvalid(const std::string& text) { return StatusIs(Code::kInvalidArgument, ::testing::HasSubstr(text)); }

}  // namespace raggrad::testing
