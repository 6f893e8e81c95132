#include "raggrad/core/limits.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdint>
#include <optional>
#include <string_view>
#include <thread>

namespace raggrad {
namespace {

// Everything is on the stack: these functions are called when memory is short.
class Path {
 public:
  Path(std::string_view folder, std::string_view rest) noexcept {
    if (folder.size() + rest.size() >= sizeof(text_)) return;  // names no file
    *std::copy(rest.begin(), rest.end(), std::copy(folder.begin(), folder.end(), text_)) = '\0';
  }
  const char* c_str() const noexcept { return text_; }

 private:
  char text_[PATH_MAX] = "";
};

// The beginning of a file; nothing if there is no such file.
class Text {
 public:
  explicit Text(const Path& path) noexcept {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    for (ssize_t got = 1; got > 0 && size_ < sizeof(text_); size_ += static_cast<size_t>(std::max<ssize_t>(got, 0))) {
      got = read(file, text_ + size_, sizeof(text_) - size_);
    }
    close(file);
  }
  std::string_view view() const noexcept { return {text_, size_}; }

 private:
  char text_[8192];
  size_t size_ = 0;
};

// Cuts `text` at the first `separator`: returns the part before it and leaves the part behind it.
std::string_view CutAt(std::string_view& text, char separator) noexcept {
  const size_t position = text.find(separator);
  const std::string_view before = text.substr(0, position);
  text.remove_prefix(position == std::string_view::npos ? text.size() : position + 1);
  return before;
}

// The number that `text` begins with, after spaces; nothing for "max", other words and negative numbers.
std::optional<uint64_t> Number(std::string_view text) noexcept {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t number = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc{}) return std::nullopt;
  return number;
}

std::optional<uint64_t> NumberIn(std::string_view folder, const char* file) noexcept {
  return Number(Text(Path(folder, file)).view());
}

// The number in the line of a table that begins with `name`.
std::optional<uint64_t> NumberOf(std::string_view table, std::string_view name) noexcept {
  while (!table.empty()) {
    std::string_view line = CutAt(table, '\n');
    if (line.substr(0, name.size()) == name) return Number(line.substr(name.size()));
  }
  return std::nullopt;
}

bool Contains(std::string_view list, std::string_view name) noexcept {
  while (!list.empty()) {
    if (CutAt(list, ',') == name) return true;
  }
  return false;
}

// Calls f(folder, version) for each group in which `controller` may limit the process, from its own up to the root. A
// container that sees its own group as the root has only the last of these folders.
template <class F>
void ForEachGroup(const char* root, std::string_view controller, const F& f) noexcept {
  const auto walk = [&](std::string_view mount, std::string_view path, int version) {
    const Path top(root, mount);
    const Path own(top.c_str(), path == "/" ? std::string_view() : path);
    const size_t shortest = std::string_view(top.c_str()).size();
    for (std::string_view folder = own.c_str();; folder = folder.substr(0, folder.rfind('/'))) {
      f(folder, version);
      if (folder.size() <= shortest) return;
    }
  };
  const Text groups(Path(root, "/proc/self/cgroup"));
  for (std::string_view lines = groups.view(); !lines.empty();) {
    std::string_view path = CutAt(lines, '\n');  // number:controllers:path
    CutAt(path, ':');
    const std::string_view controllers = CutAt(path, ':');
    if (controllers.empty()) {
      walk("/sys/fs/cgroup", path, 2);
      walk("/sys/fs/cgroup/unified", path, 2);
    } else if (Contains(controllers, controller)) {
      walk(Path("/sys/fs/cgroup/", controllers).c_str(), path, 1);
      if (controllers != controller) walk(Path("/sys/fs/cgroup/", controller).c_str(), path, 1);
    }
  }
}

int ProcessorsOfThisThread() noexcept {
  constexpr size_t kMostProcessors = 1 << 16;
  constexpr size_t kWordBits = CHAR_BIT * sizeof(unsigned long);
  unsigned long mask[kMostProcessors / kWordBits] = {};
  if (sched_getaffinity(0, sizeof(mask), reinterpret_cast<cpu_set_t*>(mask)) != 0) {
    return static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
  }
  int processors = 0;
  for (const unsigned long word : mask) processors += __builtin_popcountl(word);
  return std::max(processors, 1);
}

// The unused part of a limit, less some memory that is kept free.
uint64_t RoomOf(uint64_t limit, uint64_t used) noexcept {
  const uint64_t kept_free = std::min(limit / 32, uint64_t{64} << 20);
  return limit - kept_free > used ? limit - kept_free - used : 0;
}

uint64_t RoomOfMachine(const char* root) noexcept {
  const Text text(Path(root, "/proc/meminfo"));
  constexpr uint64_t kKiB = 1024;
  const std::optional<uint64_t> total = NumberOf(text.view(), "MemTotal:");
  const std::optional<uint64_t> available = NumberOf(text.view(), "MemAvailable:");
  const std::optional<uint64_t> swap = NumberOf(text.view(), "SwapFree:");
  if (!total || !available) return UINT64_MAX;
  return RoomOf(*total * kKiB, (*total - std::min(*available, *total)) * kKiB) + swap.value_or(0) * kKiB;
}

// The files of a group by version, and the entries of its memory.stat that the system can drop.
struct MemoryFiles {
  const char *limit, *soft_limit, *usage;
  std::string_view dropped_first[3];
};
constexpr MemoryFiles kMemoryFiles[] = {
    {"/memory.limit_in_bytes", nullptr, "/memory.usage_in_bytes", {"total_active_file ", "total_inactive_file ", {}}},
    {"/memory.max", "/memory.high", "/memory.current", {"active_file ", "inactive_file ", "slab_reclaimable "}}};

uint64_t RoomOfGroup(std::string_view folder, const MemoryFiles& files) noexcept {
  uint64_t limit = NumberIn(folder, files.limit).value_or(UINT64_MAX);
  if (files.soft_limit != nullptr) limit = std::min(limit, NumberIn(folder, files.soft_limit).value_or(UINT64_MAX));
  if (limit > INT64_MAX / 2) return UINT64_MAX;  // version 1 writes a number of that size for "no limit"
  const uint64_t used = NumberIn(folder, files.usage).value_or(0);
  const Text stat(Path(folder, "/memory.stat"));
  uint64_t cached = 0;
  for (const std::string_view name : files.dropped_first) {
    if (!name.empty()) cached += NumberOf(stat.view(), name).value_or(0);
  }
  return RoomOf(limit, used - std::min(cached, used));
}

}  // namespace

int UsableProcessors(const char* root) noexcept {
  auto usable = static_cast<uint64_t>(ProcessorsOfThisThread());
  ForEachGroup(root, "cpu", [&](std::string_view folder, int version) {
    std::optional<uint64_t> quota, period;
    if (version == 1) {
      quota = NumberIn(folder, "/cpu.cfs_quota_us");
      period = NumberIn(folder, "/cpu.cfs_period_us");
    } else {
      const Text text(Path(folder, "/cpu.max"));
      std::string_view numbers = text.view();
      quota = Number(CutAt(numbers, ' '));
      period = Number(numbers);
    }
    if (quota && period && *period > 0) usable = std::min(usable, std::max(*quota / *period, uint64_t{1}));
  });
  return static_cast<int>(usable);
}

size_t AvailableMemory(const char* root) noexcept {
  uint64_t room = RoomOfMachine(root);
  ForEachGroup(root, "memory", [&](std::string_view folder, int version) {
    room = std::min(room, RoomOfGroup(folder, kMemoryFiles[version - 1]));
  });
  return room;
}

}  // namespace raggrad
