// A plug-in that contains the static library.
#include "raggrad/core/executor.h"

[[gnu::visibility("default")]] raggrad::Executor& ExecutorOfThePlugin();
raggrad::Executor& ExecutorOfThePlugin() { return raggrad::DefaultExecutor(); }
