// Runs the library in a real control group with little memory and half a processor: requests are refused or fit, and
// the process is not killed. Skipped where the process may not make groups below its own; root mostly may.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "raggrad/core/executor.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kLimit = 256 * kMiB;

bool Write(const std::string& file, const std::string& text) {
  std::ofstream stream(file);
  stream << text << std::flush;
  return stream.good();
}

// A group below this process's own, removed by the destructor.
class Group {
 public:
  explicit Group(const std::string& controller) {
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
      const size_t first = line.find(':'), second = line.find(':', first + 1);
      const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
      if (controllers == controller) folder_ = "/sys/fs/cgroup/" + controller + path;
      if (controllers.empty() && folder_.empty()) folder_ = "/sys/fs/cgroup" + path;
    }
    folder_ += "/raggrad_test_" + std::to_string(getpid());
    made_ = mkdir(folder_.c_str(), 0755) == 0;
  }
  Group(const Group&) = delete;
  ~Group() {
    for (int i = 0; made_ && rmdir(folder_.c_str()) != 0 && i < 100; ++i) usleep(10'000);
  }
  // Writes to `file`, or to `other` where there is no `file`: groups of versions 1 and 2 have different names.
  bool Set(const std::string& file, const std::string& text, const std::string& other, const std::string& other_text) {
    return made_ && (std::filesystem::exists(folder_ + "/" + file)
                         ? Write(folder_ + "/" + file, text)
                         : std::filesystem::exists(folder_ + "/" + other) && Write(folder_ + "/" + other, other_text));
  }
  // The exit status of f() in a child that is in the group; the negative signal if one ended it.
  template <class F>
  int Run(const F& f) const {
    const pid_t child = fork();
    if (child == 0) {
      alarm(120);
      _exit(Write(folder_ + "/cgroup.procs", std::to_string(getpid())) ? f() : 99);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return 98;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  std::string folder_;
  bool made_ = false;
};

class Container : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!memory_.Set("memory.max", std::to_string(kLimit), "memory.limit_in_bytes", std::to_string(kLimit))) {
      GTEST_SKIP() << "this process may not make a group with a memory limit";
    }
    memory_.Set("memory.swap.max", "0", "memory.swappiness", "0");
  }

  Group memory_{"memory"};
};

TEST_F(Container, TheSumOfRequestsFits) {
  EXPECT_EQ(memory_.Run([] {
    std::vector<void*> blocks;
    while (void* const block = DefaultAllocator().Allocate(32 * kMiB)) {
      blocks.push_back(block);
      if (blocks.size() > 1000) return 1;
    }
    for (void* const block : blocks) std::memset(block, 1, 32 * kMiB);
    if (DefaultAllocator().Allocate(64 * kMiB) != nullptr) return 2;
    if (blocks.size() < 4) return 3;
    for (void* const block : blocks) DefaultAllocator().Deallocate(block, 32 * kMiB);
    return DefaultAllocator().Allocate(128 * kMiB) != nullptr ? 0 : 4;
  }),
            0);
}

TEST_F(Container, BlocksThatAreFilledOneByOneFit) {
  EXPECT_EQ(memory_.Run([] {
    int blocks = 0;
    while (void* const block = DefaultAllocator().Allocate(300'000)) {
      std::memset(block, 1, 300'000);
      if (++blocks > 100'000) return 1;
    }
    return blocks > 500 ? 0 : 2;
  }),
            0);
}

TEST_F(Container, CachedFilesDoNotCount) {
  const std::string file = ::testing::TempDir() + "cached_" + std::to_string(getpid());
  EXPECT_EQ(memory_.Run([&] {
    {
      std::ofstream stream(file);
      const std::string text(kMiB, 'x');
      for (int i = 0; i < 400; ++i) stream << text;
    }
    void* const block = DefaultAllocator().Allocate(128 * kMiB);
    if (block == nullptr) return 1;
    std::memset(block, 1, 128 * kMiB);
    return 0;
  }),
            0);
  std::filesystem::remove(file);
}

// A dense gradient of `table_rows` rows of 1 MiB.
Status GradientOf(int32_t table_rows) {
  const std::vector<float> grad(kMiB / sizeof(float), 1.0F);
  const int32_t zero = 0;
  return SparseSegmentGrad(SegmentCombiner::kSum, TensorView::Of(grad.data(), {1, static_cast<int64_t>(grad.size())}),
                           TensorView::Of(&zero, {1}), TensorView::Of(&zero, {1}), TensorView::Scalar(table_rows))
      .status();
}

TEST_F(Container, AnOperatorRefusesOrFits) {
  EXPECT_EQ(memory_.Run([] {
    for (const int32_t table_rows : {64, 100, 128, 150}) {
      if (!GradientOf(table_rows).ok()) return 1;
    }
    for (const int32_t table_rows : {256, 300, 512, 1024}) {
      if (GradientOf(table_rows).code() != Code::kResourceExhausted) return 2;
    }
    for (int32_t table_rows = 150; table_rows < 300; table_rows += 15) {
      if (const Status s = GradientOf(table_rows); !s.ok() && s.code() != Code::kResourceExhausted) return 3;
    }
    return GradientOf(64).ok() ? 0 : 4;
  }),
            0);
}

TEST(ContainerQuota, HalfAProcessorIsOneWorker) {
  Group group("cpu");
  if (!group.Set("cpu.max", "50000 100000", "cpu.cfs_quota_us", "50000")) {
    GTEST_SKIP() << "this process may not make a group with a CPU quota";
  }
  EXPECT_EQ(group.Run([] {
    unsetenv("RAGGRAD_NUM_THREADS");
    return DefaultExecutor().num_workers() - 1;
  }),
            0);
}

}  // namespace
}  // namespace raggrad
