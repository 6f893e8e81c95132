// Limits that the system sets for this process: processors and memory. For the library and its doors.
//
// A container's limits are those of its control groups, versions 1 and 2. Every group from the process's own up to the
// root counts, because each can be the tightest. A group that cannot be seen, or says nothing, sets no limit.
//
// Both functions read files of the system anew each time, 30 to 100 us, because limits change while a process runs.
// Callers that need them often keep the answer. `root` is a folder that stands for "/", for tests.
#pragma once

#include <cstddef>

#pragma GCC visibility push(default)
namespace raggrad {

// Number of threads that can really run at the same time: the processors that the calling thread may use, or the
// groups' CPU quota if that is less. The quota is rounded down, to at least 1: one thread too many uses it up early,
// and the system then stops threads for the rest of the period while the others wait for them.
int UsableProcessors(const char* root = "") noexcept;

// Bytes that the process can use beyond those it has before the system would have to kill a process.
//
// For the machine, that is what /proc/meminfo calls available, plus free swap. For a group it is the limit less the
// usage. The smaller of memory.max and memory.high is the limit, because a group above memory.high almost stops. Cached
// files count as usage, but the system drops them when it needs the memory, so they are subtracted. Swap of groups is
// left out: few containers have any. A 32nd of each limit, 64 MiB at most, is kept free for memory that nobody checks:
// page tables, stacks, small allocations.
//
// Memory that was granted but never written to is in no usage. MemoryBudget counts it.
size_t AvailableMemory(const char* root = "") noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
