#include "raggrad/core/version.h"

namespace raggrad {

std::string_view Version() noexcept { return RAGGRAD_VERSION; }  // defined by CMake, from project(VERSION)

}  // namespace raggrad
