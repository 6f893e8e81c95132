#include "raggrad/core/limits.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "raggrad/core/executor.h"

namespace raggrad {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kKeptFree = 64 * kMiB;  // of limits of 2 GiB and more

// A folder that looks like "/" of a machine with 64 GiB, 32 of them available, and no groups yet.
class Limits : public ::testing::Test {
 protected:
  Limits() {
    std::string pattern = ::testing::TempDir() + "limits_XXXXXX";
    root_ = mkdtemp(pattern.data());
    Write("/proc/meminfo", "MemTotal:       67108864 kB\nMemFree:         1048576 kB\nMemAvailable:   33554432 kB\n");
  }
  ~Limits() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + file).parent_path());
    std::ofstream(root_ + file) << text;
  }
  // Makes a group of version 2; `current` and `cached` are in MiB.
  void Group(const std::string& folder, const std::string& max, const std::string& high, size_t current,
             size_t cached = 0) const {
    Write(folder + "/memory.max", max + "\n");
    Write(folder + "/memory.high", high + "\n");
    Write(folder + "/memory.current", std::to_string(current * kMiB) + "\n");
    Write(folder + "/memory.stat", "anon 1\nfile 2\nworkingset_refault_file 7\ninactive_file " +
                                       std::to_string(cached * kMiB / 2) + "\nactive_file " +
                                       std::to_string(cached * kMiB / 2) + "\nslab_reclaimable 1048576\n");
  }
  void GroupV1(const std::string& folder, const std::string& limit, size_t usage, size_t cached = 0) const {
    Write(folder + "/memory.limit_in_bytes", limit + "\n");
    Write(folder + "/memory.usage_in_bytes", std::to_string(usage * kMiB) + "\n");
    Write(folder + "/memory.stat", "inactive_file 5\nactive_file 6\ntotal_inactive_file " +
                                       std::to_string(cached * kMiB / 2) + "\ntotal_active_file " +
                                       std::to_string(cached * kMiB / 2) + "\n");
  }
  size_t Available() const { return AvailableMemory(root_.c_str()); }
  int Processors() const { return UsableProcessors(root_.c_str()); }

  std::string root_;
};

const std::string kTwoGiB = "2147483648";
const std::string kNoneV1 = "9223372036854771712";

TEST_F(Limits, OfTheMachine) {
  EXPECT_EQ(Available(), 32768 * kMiB - kKeptFree);
  Write("/proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 33554432 kB\nSwapFree: 1048576 kB\n");
  EXPECT_EQ(Available(), 33792 * kMiB - kKeptFree);
  Write("/proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 1000 kB\n");
  EXPECT_EQ(Available(), 0U);
  Write("/proc/meminfo", "");
  EXPECT_EQ(Available(), SIZE_MAX);
}

TEST_F(Limits, AGroupOfVersion2) {
  Write("/proc/self/cgroup", "0::/app\n");
  Group("/sys/fs/cgroup/app", kTwoGiB, "max", 500);
  EXPECT_EQ(Available(), 1549 * kMiB - kKeptFree);  // 1 MiB of the usage is reclaimable
  Group("/sys/fs/cgroup/app", kTwoGiB, "1073741824", 500);
  EXPECT_EQ(Available(), 525 * kMiB - 32 * kMiB);
  Group("/sys/fs/cgroup/app", kTwoGiB, "max", 3000);
  EXPECT_EQ(Available(), 0U);
  Group("/sys/fs/cgroup/app", "max", "max", 500);
  EXPECT_EQ(Available(), 32768 * kMiB - kKeptFree);
}

TEST_F(Limits, CachedFilesDoNotCount) {
  Write("/proc/self/cgroup", "4:memory:/app\n0::/app\n");
  Group("/sys/fs/cgroup/app", kTwoGiB, "max", 2000, 1500);
  EXPECT_EQ(Available(), 1549 * kMiB - kKeptFree);
  GroupV1("/sys/fs/cgroup/memory/app", kTwoGiB, 2000, 1000);
  EXPECT_EQ(Available(), 1048 * kMiB - kKeptFree);
}

TEST_F(Limits, TheTightestGroupOnTheWayToTheRootCounts) {
  Write("/proc/self/cgroup", "0::/pod/app/worker\n");
  Group("/sys/fs/cgroup/pod/app/worker", "max", "max", 100);
  Group("/sys/fs/cgroup/pod/app", "4294967296", "max", 1000);
  Group("/sys/fs/cgroup/pod", kTwoGiB, "max", 1500);
  EXPECT_EQ(Available(), 549 * kMiB - kKeptFree);
  Group("/sys/fs/cgroup/pod/app", kTwoGiB, "max", 1900);
  EXPECT_EQ(Available(), 149 * kMiB - kKeptFree);
  Group("/sys/fs/cgroup", "1073741824", "max", 1000);  // a container's own group, seen as the root
  EXPECT_EQ(Available(), 0U);
}

TEST_F(Limits, AGroupOfVersion1) {
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n");
  GroupV1("/sys/fs/cgroup/memory", kNoneV1, 9000);
  EXPECT_EQ(Available(), 32768 * kMiB - kKeptFree);
  GroupV1("/sys/fs/cgroup/memory/docker/abc", kTwoGiB, 48);
  EXPECT_EQ(Available(), 2000 * kMiB - kKeptFree);
  GroupV1("/sys/fs/cgroup/memory/docker", "1073741824", 24);
  EXPECT_EQ(Available(), 1000 * kMiB - 32 * kMiB);
}

// A container without a namespace of its own reads a path that it cannot see.
TEST_F(Limits, AGroupThatIsMountedAsTheRoot) {
  Write("/proc/self/cgroup", "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n");
  GroupV1("/sys/fs/cgroup/memory", kTwoGiB, 48);
  Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Available(), 2000 * kMiB - kKeptFree);
  EXPECT_EQ(Processors(), 1);
}

TEST_F(Limits, UnreadableLimitsAreIgnored) {
  const int processors = UsableProcessors((root_ + "/nowhere").c_str());
  for (const std::string text : {"", "\n", "max", "-1", "abc", "99999999999999999999999", "18446744073709551615"}) {
    SCOPED_TRACE(text);
    Write("/proc/self/cgroup", "0::/app\n4:memory:/app\n2:cpu:/app\n");
    Group("/sys/fs/cgroup/app", text, text, 100);
    GroupV1("/sys/fs/cgroup/memory/app", text, 100);
    for (const std::string folder : {"/sys/fs/cgroup/app", "/sys/fs/cgroup/cpu/app"}) {
      Write(folder + "/cpu.max", text);
      Write(folder + "/cpu.cfs_quota_us", text);
      Write(folder + "/cpu.cfs_period_us", "0");
    }
    EXPECT_EQ(Available(), 32768 * kMiB - kKeptFree);
    EXPECT_EQ(Processors(), processors);
  }
  for (const std::string& lines : {std::string("0::"), std::string("::::\n:\n\n"), std::string("0::/\0x", 6),
                                   "0::/" + std::string(5000, 'a') + "\n", std::string(20000, ':')}) {
    Write("/proc/self/cgroup", lines);
    EXPECT_EQ(Available(), 32768 * kMiB - kKeptFree);
    EXPECT_EQ(Processors(), processors);
  }
}

TEST_F(Limits, ProcessorsFollowTheQuota) {
  const int all = UsableProcessors((root_ + "/nowhere").c_str());
  Write("/proc/self/cgroup", "0::/pod/app\n");
  const auto expect = [&](const char* own, const char* of_the_pod, int expected) {
    Write("/sys/fs/cgroup/pod/app/cpu.max", own);
    Write("/sys/fs/cgroup/pod/cpu.max", of_the_pod);
    EXPECT_EQ(Processors(), std::min(expected, all)) << own << " " << of_the_pod;
  };
  expect("50000 100000\n", "max 100000\n", 1);
  expect("199999 100000\n", "max 100000\n", 1);
  expect("200000 100000\n", "max 100000\n", 2);
  expect("max 100000\n", "10000 20000\n", 1);
  expect("800000 100000\n", "250000 100000\n", 2);
  expect("6400000 100000\n", "max 100000\n", 64);
  expect("max 100000\n", "max 100000\n", all);
  Write("/proc/self/cgroup", "2:cpu,cpuacct:/app\n");
  Write("/sys/fs/cgroup/cpu/app/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/cpu/app/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(Processors(), all);
  Write("/sys/fs/cgroup/cpu/app/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(Processors(), 1);
}

// Runs in a child, which makes a default executor of its own.
TEST(RealLimits, TheDefaultExecutorFollowsTheAffinity) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof(mask), &mask) != 0) _exit(2);
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    if (sched_setaffinity(0, sizeof(mask), &mask) != 0) _exit(3);
    unsetenv("RAGGRAD_NUM_THREADS");
    _exit(UsableProcessors() == 1 && DefaultExecutor().num_workers() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(RealLimits, ThisMachineHasSome) {
  EXPECT_GE(UsableProcessors(), 1);
  EXPECT_LE(UsableProcessors(), static_cast<int>(sysconf(_SC_NPROCESSORS_CONF)));
  const auto page = static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  EXPECT_GT(AvailableMemory(), 0U);
  EXPECT_LT(AvailableMemory() / page, static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * 16);
}

}  // namespace
}  // namespace raggrad
