// Limits that the system sets for this process: processors and memory. Internal to the library.
//
// A container's limits are those of its control groups, versions 1 and 2. Every group from the process's own up to the
// root counts, because each can be the tightest. A group that cannot be seen, or says nothing, sets no limit.
//
// Both functions read files of the system anew each time, 30 to 100 us, because limits change while a process runs.
// Callers keep the answer where they are called often. `root` is a folder that stands for "/", for tests.
#pragma once

#include <cstddef>

namespace raggrad {

// How many threads can really run at the same time: the processors that the calling thread may use, or the groups' CPU
// quota if that is less. The quota is rounded down, to 1 at least: one thread more than the quota pays for means that
// all are stopped for the rest of the period, and the others wait for what those hold.
int UsableProcessors(const char* root = "") noexcept;

// How many bytes the process can use in addition to what it has, before the system would have to kill somebody.
//
// For the machine, that is what /proc/meminfo calls available, and free swap space. For a group it is the limit less
// the usage; of memory.max and memory.high the smaller one is the limit, because a group above the latter comes almost
// to a standstill. Cached files count as usage, but the system drops them when it needs the memory, so they are taken
// off again. Swap of groups is left out: few containers have any. A 32nd of each limit, 64 MiB at most, is kept free
// for what nobody asks about: page tables, stacks, small allocations.
//
// Memory that was granted but never written to is not in anybody's usage. See MemoryBudget.
size_t AvailableMemory(const char* root = "") noexcept;

}  // namespace raggrad
