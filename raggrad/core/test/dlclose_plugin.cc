// A plug-in that has the static library inside.
#include "raggrad/core/executor.h"

[[gnu::visibility("default")]] raggrad::Executor& PoolOfThePlugin();
raggrad::Executor& PoolOfThePlugin() { return raggrad::DefaultExecutor(); }
