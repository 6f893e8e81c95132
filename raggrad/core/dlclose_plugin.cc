// A plug-in that has the static library inside.
#include "raggrad/core/parallel.h"

[[gnu::visibility("default")]] raggrad::Parallel& PoolOfThePlugin();
raggrad::Parallel& PoolOfThePlugin() { return raggrad::DefaultParallel(); }
