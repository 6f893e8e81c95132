// A child of fork() gets errors, not deadlocks, from a runtime of its parent, and can make its own.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "raggrad/ops/batching/test/test_calls.h"

namespace raggrad::testing {
namespace {

// TSan kills a child of a process with threads if the child starts threads.
#if defined(__SANITIZE_THREAD__)
constexpr bool kChildMayStartThreads = false;
#else
constexpr bool kChildMayStartThreads = true;
#endif

// Runs `child() -> int` in a child of fork(). Returns its number, or -1 if a signal ended the child.
template <class F>
int ExitCodeOf(const F& child) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(30);  // a deadlock ends the child by a signal
    _exit(child());
  }
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Counts the results that are not UNAVAILABLE.
int CountAvailable(BatchingRuntime& runtime) {
  const GradOperands operands(1, FloatPiece(1, 2, 0), {1});
  const Tensor rows = TensorOf<float>({1, 2}, Shape{1, 2});
  const UnbatchCall unbatch{{"", "u"}, rows.view(), operands.call().batch_index, operands.call().id, 1000};
  const BatchCall batch{.resource = {"", "b"}, .in_tensors = {{rows.view()}}, .max_batch_size = 1};
  int available = 0;
  const auto look = [&](const Status& status) { available += status.code() == Code::kUnavailable ? 0 : 1; };
  look(runtime.UnbatchGrad(operands.call()).status());
  look(runtime.Unbatch(unbatch).status());
  look(runtime.Batch(batch).status());
  bool called = false;
  runtime.UnbatchGradAsync(operands.call(), [&](const Result<Tensor>& result) {
    called = true;
    look(result.status());
  });
  look(runtime.Statistics(ResourceKind::kUnbatchGrad, {"", "r"}).status());
  look(runtime.SetLimits(ResourceKind::kUnbatchGrad, {"", "r"}, {}));
  look(runtime.Close(ResourceKind::kUnbatchGrad, {"", "r"}));
  runtime.CloseAll();
  return available + (called ? 0 : 1);
}

TEST(BatchingForkTest, ARuntimeOfTheParentIsUnavailable) {
  CallLog<Tensor> log;
  const Cancellation token;
  auto runtime = std::make_unique<BatchingRuntime>();
  GradOperands owner(1, FloatPiece(1, 2, 0), {1, 2});
  owner.call().waiting.cancellation = token;
  runtime->UnbatchGradAsync(owner.call(), log.Record(0));
  EXPECT_EQ(ExitCodeOf([&] {
              const int available = CountAvailable(*runtime);
              token.Cancel();  // does nothing
              if (log.Find(0) != nullptr) return 100;
              runtime.reset();
              return available;
            }),
            0);
  token.Cancel();
  EXPECT_NE(log.Find(0), nullptr) << "in the parent everything goes on";
}

TEST(BatchingForkTest, AChildMakesItsOwnRuntime) {
  CallLog<Tensor> log;  // outlives the runtime, whose destructor completes waiting calls
  BatchingRuntime parents;
  const GradOperands owner(1, FloatPiece(1, 2, 0), {1, 2});
  parents.UnbatchGradAsync(owner.call(), log.Record(0));
  // Waits until the watcher runs: a thread that is just starting may hold a lock of AddressSanitizer, and the child
  // would wait for it.
  GradOperands late(3, FloatPiece(1, 2, 0), {3, 4});
  late.call().waiting.timeout = WaitTime(1000);
  ASSERT_EQ(parents.UnbatchGrad(late.call()).status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(ExitCodeOf([&] {
              BatchingRuntime own;
              GradOperands waits(1, FloatPiece(1, 2, 0), {1, 2});
              waits.call().waiting.timeout = WaitTime(1000);
              if (kChildMayStartThreads && own.UnbatchGrad(waits.call()).status().code() != Code::kDeadlineExceeded) {
                return 1;
              }
              const GradOperands alone(1, FloatPiece(1, 2, 0), {1});
              return own.UnbatchGrad(alone.call()).ok() ? 0 : 2;
            }),
            0);
}

// Locks that other threads hold during fork() stay locked in the child for ever.
TEST(BatchingForkTest, WhileOtherThreadsAreBusy) {
  BatchingRuntime runtime;
  std::atomic<bool> stop{false};
  const Cancellation token;
  std::thread busy([&] {
    for (int64_t id = 0; !stop; ++id) {
      GradOperands piece(id, FloatPiece(1, 2, 0));
      GradOperands owner(-1 - id, FloatPiece(1, 2, 0), {-1 - id, id});
      owner.call().waiting.cancellation = token;
      runtime.UnbatchGradAsync(owner.call(), [](const Result<Tensor>&) {});
      runtime.UnbatchGradAsync(piece.call(), [](const Result<Tensor>&) {});
    }
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(ExitCodeOf([&] {
                token.Cancel();
                return CountAvailable(runtime);
              }),
              0);
  }
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace raggrad::testing
