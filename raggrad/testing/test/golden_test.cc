// Runs every case of the golden files through the C++ interface, with 1, 2 and 7 threads and every instruction set:
// codes, TensorFlow's words in the error text, shapes, dtypes and bits must be the recorded ones. One test per file.
//
// Files come from the project's goldens/ and from the directory that RAGGRAD_SHARED_GOLDENS names, if any. With
// RAGGRAD_TEST_DEVICE=cuda operands are in device memory, and sums in the CPU's order.
#include "raggrad/testing/golden.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <map>

#include "raggrad/cuda/cuda.h"
#include "raggrad/testing/golden_device.h"
#include "raggrad/testing/golden_operators.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

using ::testing::HasSubstr;

// A dtype that an operator does not have is INVALID_ARGUMENT here, whatever TensorFlow said; and SparseSliceGrad has
// three dtypes that TensorFlow lists without a kernel.
Code ExpectedCode(const GoldenCase& golden) {
  if (golden.code == Code::kOk || !golden.note.starts_with("dtype")) return golden.code;
  if (golden.op == "SparseSliceGrad" &&
      Contains(TypeList<QInt8, QUInt8, QInt32>{}, golden.Input("backprop_val_grad").dtype)) {
    return Code::kOk;
  }
  return Code::kInvalidArgument;
}

bool HasTensorFlowsWords(const GoldenCase& golden) {
  return !golden.note.starts_with("dtype") && !golden.note.starts_with("oom");
}

class ExpectedOutputs final : public GoldenOutputs {
 public:
  explicit ExpectedOutputs(const GoldenCase& golden) : golden_(golden) {}
  ~ExpectedOutputs() override { EXPECT_EQ(count_, golden_.outputs.size()) << "not all recorded outputs are there"; }

  void Add(std::string_view name, const GoldenView& output) override {
    if (golden_.code != Code::kOk) return;  // a dtype that only this library has
    ++count_;
    const auto found = golden_.outputs.find(name);
    ASSERT_NE(found, golden_.outputs.end()) << "the recorded case has no output " << name;
    EXPECT_EQ(Difference(output, found->second), "") << "in output " << name;
  }

 private:
  const GoldenCase& golden_;
  size_t count_ = 0;
};

// A limit that makes the large requests of some cases fail on machines with much memory, too.
constexpr size_t kSmallMemory = size_t{8} << 30;

// Runs `golden` with the operands of `operands`, which may be in device memory.
void RunCase(const GoldenCase& golden, const GoldenCase& operands, GoldenOperator call, const Context& ctx,
             GoldenOutputs& outputs) {
  const Status status = call(operands, ctx, outputs);
  if (const Code code = ExpectedCode(golden); code != Code::kOk) {
    EXPECT_THAT(status, StatusIs(code, HasSubstr(HasTensorFlowsWords(golden) ? golden.message : "")));
  } else {
    EXPECT_THAT(status, IsOk());
  }
}

void RunOnCpu(const GoldenCase& golden, GoldenOperator call) {
  ExactAllocator small_memory(kSmallMemory);
  ForEachSetting([&](Context ctx) {
    if (ExpectedCode(golden) == Code::kResourceExhausted) ctx.allocator = &small_memory;
    ExpectedOutputs outputs(golden);
    RunCase(golden, golden, call, ctx, outputs);
  });
}

void RunOnGpu(const GoldenCase& golden, GoldenOperator call) {
  class HostCopies final : public GoldenOutputs {
   public:
    explicit HostCopies(GoldenOutputs& outputs) : outputs_(outputs) {}
    void Add(std::string_view name, const GoldenView& output) override {
      WithHostCopy(output, [&](const GoldenView& copy) { outputs_.Add(name, copy); });
    }

   private:
    GoldenOutputs& outputs_;
  };
  LimitedDeviceMemory small_memory(kSmallMemory);
  Context ctx;
  if (ExpectedCode(golden) == Code::kResourceExhausted) ctx.device_allocator = &small_memory;
  ctx.accumulation = Accumulation::kSequential;
  ExpectedOutputs expected(golden);
  HostCopies outputs(expected);
  RunCase(golden, CopyToDevice(golden), call, ctx, outputs);
}

bool OnGpu() {
  const char* const device = std::getenv("RAGGRAD_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "cuda";
}

// Counts the cases that ran and, by reason, those that did not.
struct Tally {
  size_t ran = 0;
  std::map<std::string, size_t, std::less<>> not_run;

  void Add(const Tally& other) {
    ran += other.ran;
    for (const auto& [reason, count] : other.not_run) not_run[reason] += count;
  }
  std::string Text() const {
    std::string text = std::to_string(ran) + (OnGpu() ? " cases on the GPU" : " cases");
    for (const auto& [reason, count] : not_run) text += "; not " + std::to_string(count) + ": " + reason;
    return text;
  }
};

class Golden : public ::testing::TestWithParam<std::filesystem::path> {
 public:
  static void TearDownTestSuite() { std::cout << "[   RAN    ] in all files " << total_.Text() << std::endl; }

 protected:
  // Why the case cannot be run, or "" if it was.
  static std::string Run(const GoldenCase& golden) {
    const GoldenOperator call = FindGoldenOperator(golden.op);
    if (!call) return "this version does not have " + golden.op;
    if (!OnGpu()) {
      RunOnCpu(golden, call);
      return "";
    }
    const std::string_view why_not = WhyNotOnDevice(golden);
    if (why_not.empty()) RunOnGpu(golden, call);
    return std::string(why_not);
  }

  inline static Tally total_;
};

TEST_P(Golden, AllCasesAgree) {
  if (OnGpu()) {
    if (const Status status = CudaStatus(); !status.ok()) GTEST_SKIP() << status.message();
  }
  std::vector<GoldenCase> cases;
  try {
    cases = ReadGoldens(GetParam());
  } catch (const GoldenError& error) {
    FAIL() << error.what();
  }
  ASSERT_FALSE(cases.empty()) << GetParam() << " has no cases";
  Tally tally;
  for (const GoldenCase& golden : cases) {
    SCOPED_TRACE(golden.place);
    const std::string why_not = Run(golden);
    ++(why_not.empty() ? tally.ran : tally.not_run[why_not]);
  }
  total_.Add(tally);
  if (tally.ran == 0) GTEST_SKIP() << tally.Text();
  if (!tally.not_run.empty()) std::cout << "[   RAN    ] " << tally.Text() << std::endl;
}

std::filesystem::path SharedGoldens() {
  const char* const directory = std::getenv("RAGGRAD_SHARED_GOLDENS");
  return directory != nullptr ? directory : "";
}

std::vector<std::filesystem::path> AllFiles() {
  std::vector<std::filesystem::path> files = GoldenFiles(RAGGRAD_GOLDENS);
  if (!SharedGoldens().empty()) std::ranges::move(GoldenFiles(SharedGoldens()), std::back_inserter(files));
  return files;
}

std::string FileName(const ::testing::TestParamInfo<std::filesystem::path>& info) {
  const bool shared = info.param.parent_path() != std::filesystem::path(RAGGRAD_GOLDENS);
  return (shared ? "Shared_" : "") + info.param.stem().string();
}

INSTANTIATE_TEST_SUITE_P(Files, Golden, ::testing::ValuesIn(AllFiles()), FileName);

TEST(GoldenFiles, AreThere) {
  EXPECT_FALSE(GoldenFiles(RAGGRAD_GOLDENS).empty()) << "no golden files in " << RAGGRAD_GOLDENS;
  if (!SharedGoldens().empty()) {
    EXPECT_FALSE(GoldenFiles(SharedGoldens()).empty()) << "no golden files in " << SharedGoldens();
  }
}

}  // namespace
}  // namespace raggrad::testing
