#include "raggrad/core/status.h"

namespace raggrad {

std::string_view CodeName(Code code) noexcept {
  switch (code) {
    case Code::kOk:
      return "OK";
    case Code::kCancelled:
      return "CANCELLED";
    case Code::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case Code::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case Code::kNotFound:
      return "NOT_FOUND";
    case Code::kAlreadyExists:
      return "ALREADY_EXISTS";
    case Code::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case Code::kUnimplemented:
      return "UNIMPLEMENTED";
    case Code::kInternal:
      return "INTERNAL";
    case Code::kUnavailable:
      return "UNAVAILABLE";
  }
  return "UNKNOWN";
}

Status::Status(Code code, std::string_view message) noexcept : code_(code) {
  if (message.empty()) return;
  try {
    message_ = std::make_shared<const std::string>(message);
  } catch (const std::bad_alloc&) {
    // The code survives; message() says that there was no memory for the text.
  }
}

std::string_view Status::message() const noexcept {
  if (message_) return *message_;
  return ok() ? "" : "(no memory left for the message)";
}

}  // namespace raggrad
