// Torch's pool of threads as an Executor.
#pragma once

#include "raggrad/core/executor.h"

namespace raggrad::torch_door {

// Runs tasks on the threads of torch.set_num_threads(). In a child of fork() it uses only the calling thread: OpenMP's
// threads stayed behind in the parent, and waiting for them would never end.
Executor& TorchExecutor() noexcept;

}  // namespace raggrad::torch_door
