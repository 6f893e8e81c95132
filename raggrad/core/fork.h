// Knows whether this process was forked since an object was made. Internal to the library.
#pragma once

namespace raggrad {

// A number that is different in a child of fork(). Threads stay behind in the parent, and locks as they were: an object
// that has any remembers the number it was made under and, in a child, does without them.
int ForkGeneration() noexcept;

}  // namespace raggrad
