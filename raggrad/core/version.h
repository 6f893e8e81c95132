// The version of the library a program runs with, which need not be the one it was compiled with.
#pragma once

#include <string_view>

#pragma GCC visibility push(default)
namespace raggrad {

std::string_view Version() noexcept;  // "major.minor.patch"

}  // namespace raggrad
#pragma GCC visibility pop
