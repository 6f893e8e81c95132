// FunctionRef<R(Args...)>: a reference to a callable, such as a lambda: two pointers, no allocation. The callable must
// outlive it.
#pragma once

#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)
namespace raggrad {

template <class Signature>
class FunctionRef;

template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, const F&, Args...>)
      FunctionRef(const F& f)
  noexcept  // NOLINT: implicit, so that a lambda can be passed
      : object_(&f), call_([](const void* object, Args... args) -> R {
          return (*static_cast<const F*>(object))(std::forward<Args>(args)...);
        }) {}

  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  const void* object_;
  R (*call_)(const void*, Args...);
};

}  // namespace raggrad
#pragma GCC visibility pop
