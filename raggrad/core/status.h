// Status: the code and message that a call returns instead of throwing an exception.
//
//   if (Status s = CheckSomething(); !s.ok()) return s;
//
// The codes are the canonical ones (the values gRPC and TensorFlow use), so that C, Python and frameworks get them
// unchanged.
// Building a Status never throws: when there is no memory for the text, the code survives and the text says so.
#pragma once

#include <memory>
#include <string>
#include <string_view>

// Every installed header has this: the shared library exports what they declare, and nothing else.
#pragma GCC visibility push(default)
namespace raggrad {

enum class Code : int {
  kOk = 0,
  kCancelled = 1,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kResourceExhausted = 8,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
};

// The canonical spelling, e.g. "INVALID_ARGUMENT".
std::string_view CodeName(Code code) noexcept;

class [[nodiscard]] Status {
 public:
  Status() noexcept = default;                           // OK
  Status(Code code, std::string_view message) noexcept;  // an empty message is one that got no memory

  bool ok() const noexcept { return code_ == Code::kOk; }
  Code code() const noexcept { return code_; }
  std::string_view message() const noexcept;

 private:
  Code code_ = Code::kOk;
  std::shared_ptr<const std::string> message_;  // shared, so that copying cannot fail
};

}  // namespace raggrad
#pragma GCC visibility pop
