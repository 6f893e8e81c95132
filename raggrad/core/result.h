// Result<T>: a value, or the Status that says why there is none.
#pragma once

#include <optional>
#include <utility>

#include "raggrad/core/status.h"

#pragma GCC visibility push(default)
namespace raggrad {

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) noexcept : value_(std::move(value)) {}         // NOLINT: implicit, so that `return value;` works
  Result(Status status) noexcept : status_(std::move(status)) {  // NOLINT: implicit, so that `return status;` works
    if (status_.ok()) status_ = Status(Code::kInternal, "a Result was made from an OK status without a value");
  }

  bool ok() const noexcept { return value_.has_value(); }
  const Status& status() const noexcept { return status_; }  // OK when there is a value

  // The value; call only if ok().
  T& operator*() & noexcept { return *value_; }
  const T& operator*() const& noexcept { return *value_; }
  T&& operator*() && noexcept { return *std::move(value_); }
  T* operator->() noexcept { return &*value_; }
  const T* operator->() const noexcept { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace raggrad
#pragma GCC visibility pop
