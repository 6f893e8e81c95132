// Callbacks that misbehave. Deadlines are kept whatever a callback does; a callback may call the runtime again and
// destroy it; and when the destructor has returned, nothing of the caller's is touched any more.
#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <thread>

#include "raggrad/ops/batching/test/test_calls.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::_;

constexpr auto kForEver = std::chrono::seconds(20);  // a test that waits for so long has failed
constexpr WaitTime kSoon = milliseconds(20);

// An owner that waits for piece `id` + 1, which never comes.
GradOperands Waiter(int64_t id, WaitTime timeout) {
  GradOperands owner(id, FloatPiece(1, 2, 0), {id, id + 1});
  owner.call().waiting.timeout = timeout;
  return owner;
}

// Lets go of callbacks that wait, at the latest when the test ends.
class Gate {
 public:
  ~Gate() { Open(); }
  void Open() {
    if (!std::exchange(is_open_, true)) open_.set_value();
  }
  void Wait() const { opened_.wait(); }

 private:
  std::promise<void> open_;
  std::shared_future<void> opened_ = open_.get_future().share();
  bool is_open_ = false;
};

template <class F>
bool Eventually(const F& condition) {
  const auto end = std::chrono::steady_clock::now() + kForEver;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

// A blocking call whose deadline comes soon. Must end by it; the token ends it if the deadline is not kept.
Code CodeOfWaitingCall(BatchingRuntime& runtime, int64_t id) {
  GradOperands owner = Waiter(id, kSoon);
  const Cancellation token;
  owner.call().waiting.cancellation = token;
  auto call = std::async(std::launch::async, [&] { return runtime.UnbatchGrad(owner.call()).status().code(); });
  if (call.wait_for(kForEver) != std::future_status::ready) token.Cancel();
  return call.get();
}

TEST(BatchingCallbacks, ASleepingCallbackDelaysNoDeadline) {
  Gate gate;
  std::atomic<int> asleep{0}, others{0};
  BatchingRuntime runtime;
  for (int64_t id = 0; id < 100; id += 10) {
    runtime.UnbatchGradAsync(Waiter(id, kSoon).call(), [&](const Result<Tensor>&) {
      ++asleep;
      gate.Wait();
    });
  }
  EXPECT_TRUE(Eventually([&] { return asleep == 10; })) << asleep << " deadlines are kept";
  EXPECT_EQ(CodeOfWaitingCall(runtime, 1000), Code::kDeadlineExceeded);
  runtime.UnbatchGradAsync(Waiter(2000, kSoon).call(), [&](const Result<Tensor>&) { ++others; });
  const Tensor row = TensorOf<float>({1}, Shape{1, 1});
  runtime.BatchAsync(
      {.resource = {}, .in_tensors = {{row.view()}}, .max_batch_size = 2, .batch_timeout_micros = 20'000},
      [&](const Result<BatchOutput>&) { ++others; });
  EXPECT_TRUE(Eventually([&] { return others == 2; })) << others << " deadlines are kept";
  gate.Open();
}

// The same for the destruction of pieces that expire.
TEST(BatchingCallbacks, ASleepingKeepAliveDelaysNoDeadline) {
  Gate gate;
  std::atomic<int> asleep{0};
  BatchingRuntime runtime({}, {.max_piece_age = kSoon});
  GradOperands piece(1, FloatPiece(1, 2, 0));
  const int something = 0;
  piece.call().grad.keep_alive = std::shared_ptr<const int>(&something, [&](const int*) {
    ++asleep;
    gate.Wait();
  });
  EXPECT_THAT(runtime.UnbatchGrad(piece.call()), IsOk());
  piece.call().grad.keep_alive = nullptr;
  EXPECT_TRUE(Eventually([&] { return asleep == 1; }));
  EXPECT_EQ(CodeOfWaitingCall(runtime, 1000), Code::kDeadlineExceeded);
  gate.Open();
}

// More callbacks than there are threads for: calls that block keep their deadlines, the other callbacks come later.
TEST(BatchingCallbacks, EvenAHundredSleepingCallbacks) {
  constexpr int kCalls = 100;
  Gate gate;
  std::atomic<int> completed{0};
  BatchingRuntime runtime;
  for (int64_t id = 0; id < 10 * kCalls; id += 10) {
    runtime.UnbatchGradAsync(Waiter(id, WaitTime(0)).call(), [&](const Result<Tensor>&) {
      gate.Wait();
      ++completed;
    });
  }
  EXPECT_EQ(CodeOfWaitingCall(runtime, 100'000), Code::kDeadlineExceeded);
  EXPECT_EQ(completed, 0);
  gate.Open();
  EXPECT_TRUE(Eventually([&] { return completed == kCalls; }));
}

TEST(BatchingCallbacks, MayMakeACallThatWaits) {
  std::promise<Code> inner;
  BatchingRuntime runtime;
  runtime.UnbatchGradAsync(Waiter(0, kSoon).call(), [&](const Result<Tensor>& result) {
    EXPECT_THAT(result, StatusIs(Code::kDeadlineExceeded, _));
    inner.set_value(CodeOfWaitingCall(runtime, 0));
  });
  EXPECT_EQ(inner.get_future().get(), Code::kDeadlineExceeded);
}

TEST(BatchingCallbacks, MayMakeAsynchronousCallsAndWaitForThem) {
  constexpr int kDepth = 20;
  std::promise<void> end;
  BatchingRuntime runtime;
  std::function<void(int)> call = [&](int depth) {
    runtime.UnbatchGradAsync(Waiter(10 * depth, WaitTime(1000)).call(), [&, depth](const Result<Tensor>& result) {
      EXPECT_THAT(result, StatusIs(Code::kDeadlineExceeded, _));
      if (depth == kDepth) return end.set_value();
      std::atomic<bool> ended{false};
      runtime.UnbatchGradAsync(Waiter(10 * depth + 5, WaitTime(1000)).call(),
                               [&](const Result<Tensor>&) { ended = true; });
      EXPECT_TRUE(Eventually([&] { return ended.load(); }));
      call(depth + 1);
    });
  };
  call(0);
  end.get_future().wait();
}

// Counts what is asked of it after the end.
class WatchedAllocator final : public Allocator {
 public:
  void* Allocate(size_t bytes) noexcept override {
    Look();
    return DefaultAllocator().Allocate(bytes);
  }
  void Deallocate(void* pointer, size_t bytes) noexcept override {
    if (on_deallocate) on_deallocate();
    Look();
    DefaultAllocator().Deallocate(pointer, bytes);
  }
  void Look() noexcept {
    if (ended) ++late;
  }

  std::function<void()> on_deallocate;
  std::atomic<bool> ended{false};
  std::atomic<int> late{0};
};

// Calls of a runtime, of which the first to complete destroys the runtime.
class Scene {
 public:
  Scene() {
    Context ctx;
    ctx.allocator = &allocator_;
    runtime_ = std::make_unique<BatchingRuntime>(ctx);
  }

  BatchingRuntime& runtime() { return *runtime_; }

  template <class T>
  Completion<T> Done() {
    ++begun_;
    const std::shared_ptr<Witness> witness(new Witness{*this});
    return [this, witness](Result<T> result) {
      { const Result<T> dropped = std::move(result); }
      ++completed_;
      if (destroys_.exchange(true)) return;
      witness->destroys = true;
      runtime_.reset();
      completed_before_end_ = completed_.load();
      allocator_.ended = true;
    };
  }

  // What a call has returned: its memory is the caller's to give back, when everything has been looked at.
  void Keep(Result<BatchOutput> result) { kept_.push_back(std::move(result)); }

  void Expect(const std::function<void(Scene&)>& act) {
    act(*this);
    ASSERT_TRUE(Eventually([&] { return allocator_.ended.load(); })) << "nobody has destroyed the runtime";
    EXPECT_EQ(completed_before_end_, begun_) << "callbacks that have run when the destructor returns";
    EXPECT_EQ(completed_, begun_);
    std::this_thread::sleep_for(milliseconds(5));
    EXPECT_EQ(allocator_.late, 0) << "the caller's things are used when the destructor has returned";
  }

 private:
  // Goes with its completion, which is the caller's, too: that of the callback that destroys the runtime when it
  // returns, all others before.
  struct Witness {
    ~Witness() {
      if (!destroys) scene.allocator_.Look();
    }
    Scene& scene;
    bool destroys = false;
  };

  WatchedAllocator allocator_;
  std::unique_ptr<BatchingRuntime> runtime_;
  std::vector<Result<BatchOutput>> kept_;
  std::atomic<int> begun_{0}, completed_{0}, completed_before_end_{-1};
  std::atomic<bool> destroys_{false};
};

const int64_t kIds[] = {10, 20, 30, 40};
const Tensor& Row() {
  static const Tensor* const row = new Tensor(TensorOf<float>({1}, Shape{1, 1}));
  return *row;
}
const Tensor& NoRows() {
  static const Tensor* const none = new Tensor(TensorOf<float>({}, Shape{0, 1}));
  return *none;
}

void StartWaiters(Scene& scene, WaitTime timeout, const std::optional<Cancellation>& token = {}) {
  for (const int64_t id : kIds) {
    GradOperands owner = Waiter(id, timeout);
    owner.call().waiting.cancellation = token;
    owner.call().resource.name = "r" + std::to_string(id % 20);
    scene.runtime().UnbatchGradAsync(owner.call(), scene.Done<Tensor>());
  }
}

void StartReceivers(Scene& scene) {
  const auto no_index = Index({});
  for (const int64_t& id : kIds) {
    scene.runtime().UnbatchAsync({{}, NoRows().view(), no_index->view(), TensorView::Scalar(id), 1'000'000'000},
                                 scene.Done<Tensor>());
  }
}

BatchCall RowsOf(int64_t max_batch_size, int64_t timeout_micros = 1'000'000'000) {
  return {.resource = {},
          .in_tensors = {{Row().view()}},
          .max_batch_size = max_batch_size,
          .batch_timeout_micros = timeout_micros};
}

struct Ending {
  const char* name;
  void (*act)(Scene&);
};

const Ending kEndings[] = {
    {"Deadlines", [](Scene& scene) { StartWaiters(scene, kSoon); }},
    {"Cancellation",
     [](Scene& scene) {
       const Cancellation token;
       StartWaiters(scene, kForEver, token);
       token.Cancel();
     }},
    {"Close",
     [](Scene& scene) {
       StartWaiters(scene, kForEver);
       EXPECT_THAT(scene.runtime().Close(ResourceKind::kUnbatchGrad, {"", "r0"}), IsOk());
     }},
    {"CloseAll",
     [](Scene& scene) {
       StartWaiters(scene, kForEver);
       StartReceivers(scene);
       scene.runtime().CloseAll();
     }},
    {"ALastPiece",
     [](Scene& scene) {
       StartWaiters(scene, kForEver);
       GradOperands piece(11, FloatPiece(1, 2, 0));
       piece.call().resource.name = "r10";
       scene.runtime().UnbatchGradAsync(piece.call(), scene.Done<Tensor>());
     }},
    {"ALastPieceOfABlockingCall",
     [](Scene& scene) {
       StartWaiters(scene, kForEver);
       GradOperands piece(11, FloatPiece(1, 2, 0));
       piece.call().resource.name = "r10";
       const Result<Tensor> result = scene.runtime().UnbatchGrad(piece.call());
       EXPECT_THAT(result, IsOk());
       EXPECT_EQ(result->bytes(), 0U) << "no rows need no memory: the allocator is not needed any more";
     }},
    {"PiecesOfUnbatch",
     [](Scene& scene) {
       StartReceivers(scene);
       const Tensor batch = TensorOf<float>({1, 2, 3, 4, 5}, Shape{5, 1});
       const auto index = Index({10, 20, 30, 50});
       const int64_t id = 60;
       scene.runtime().UnbatchAsync({{}, batch.view(), index->view(), TensorView::Scalar(id), 1'000'000'000},
                                    scene.Done<Tensor>());
     }},
    {"AFullBatch",
     [](Scene& scene) {
       for (int i = 0; i < 3; ++i) scene.runtime().BatchAsync(RowsOf(3), scene.Done<BatchOutput>());
     }},
    {"ADisplacedBatch",
     [](Scene& scene) {
       const Tensor rows = TensorOf<float>({1, 2, 3}, Shape{3, 1});
       for (int i = 0; i < 2; ++i) scene.runtime().BatchAsync(RowsOf(3), scene.Done<BatchOutput>());
       BatchCall full = RowsOf(3);
       full.in_tensors = {{rows.view()}};
       scene.runtime().BatchAsync(full, scene.Done<BatchOutput>());
     }},
    {"ABatchThatIsDue",
     [](Scene& scene) {
       for (int i = 0; i < 3; ++i) scene.runtime().BatchAsync(RowsOf(100, 20'000), scene.Done<BatchOutput>());
     }},
    {"ABatchOfABlockingCall",
     [](Scene& scene) {
       for (int i = 0; i < 3; ++i) scene.runtime().BatchAsync(RowsOf(100, 20'000), scene.Done<BatchOutput>());
       Result<BatchOutput> result = scene.runtime().Batch(RowsOf(100, 20'000));
       EXPECT_THAT(result, IsOk());
       scene.Keep(std::move(result));
     }},
    {"ACallThatFails",
     [](Scene& scene) {
       StartWaiters(scene, kForEver);
       GradOperands piece(10, FloatPiece(1, 2, 0));
       piece.call().resource.name = "r10";
       scene.runtime().UnbatchGradAsync(piece.call(), scene.Done<Tensor>());
     }},
};

class DestroyedByACallback : public ::testing::TestWithParam<Ending> {};

TEST_P(DestroyedByACallback, AllCallbacksHaveRunWhenTheDestructorReturns) { Scene().Expect(GetParam().act); }

INSTANTIATE_TEST_SUITE_P(All, DestroyedByACallback, ::testing::ValuesIn(kEndings),
                         [](const auto& ending) { return ending.param.name; });

TEST(BatchingCallbacks, OfAnEndingRuntimeGetCancelled) {
  std::atomic<int> inner{0};
  auto runtime = std::make_unique<BatchingRuntime>();
  runtime->UnbatchGradAsync(Waiter(0, kForEver).call(), [&](const Result<Tensor>&) {
    const auto expect_cancelled = [&](const Result<Tensor>& result) {
      EXPECT_THAT(result, StatusIs(Code::kCancelled, ::testing::HasSubstr("the runtime is being destroyed")));
      ++inner;
    };
    runtime->UnbatchGradAsync(Waiter(0, kForEver).call(), expect_cancelled);
    expect_cancelled(runtime->UnbatchGrad(Waiter(1, kForEver).call()));
  });
  BatchingRuntime* const ends = runtime.get();
  ends->~BatchingRuntime();
  EXPECT_EQ(inner, 2);
  operator delete(runtime.release());
}

// Another thread cancels, and is about to give a piece back when the runtime is destroyed.
TEST(BatchingCallbacks, TheDestructorWaitsForWhoCancels) {
  for (int i = 0; i < 3; ++i) {
    WatchedAllocator allocator;
    std::promise<void> gives_back;
    std::atomic<bool> first{true};
    allocator.on_deallocate = [&] {
      if (!first.exchange(false)) return;
      gives_back.set_value();
      std::this_thread::sleep_for(milliseconds(100));  // the destructor would have returned by then
    };
    std::atomic<int> completed{0};
    const Cancellation token;
    Context ctx;
    ctx.allocator = &allocator;
    auto runtime = std::make_unique<BatchingRuntime>(ctx);
    GradOperands owner = Waiter(0, kForEver);
    owner.call().waiting.cancellation = token;
    runtime->UnbatchGradAsync(owner.call(), [&](const Result<Tensor>&) {
      ++completed;
      allocator.Look();
    });
    std::thread cancels([&] { token.Cancel(); });
    gives_back.get_future().wait();
    runtime.reset();
    allocator.ended = true;
    EXPECT_EQ(completed, 1);
    cancels.join();
    EXPECT_EQ(allocator.late, 0);
  }
}

// The race itself, many times: what is wrong with it a sanitizer sees.
TEST(BatchingCallbacks, CancellingWhileTheRuntimeIsDestroyed) {
  for (int i = 0; i < 300; ++i) {
    auto allocator = std::make_unique<WatchedAllocator>();
    auto completed = std::make_unique<std::atomic<int>>(0);
    const Cancellation tokens[2];
    Context ctx;
    ctx.allocator = allocator.get();
    auto runtime = std::make_unique<BatchingRuntime>(ctx);
    for (int64_t id = 0; id < 8; ++id) {
      GradOperands owner = Waiter(10 * id, kForEver);
      owner.call().waiting.cancellation = tokens[id % 2];
      runtime->UnbatchGradAsync(owner.call(), [&](const Result<Tensor>&) { ++*completed; });
    }
    std::atomic<int> ready{0};
    const auto cancel = [&](int which) {
      for (++ready; ready < 3;) std::this_thread::yield();
      tokens[which].Cancel();
    };
    std::thread first(cancel, 0), second(cancel, 1);
    for (++ready; ready < 3;) std::this_thread::yield();
    runtime.reset();
    EXPECT_EQ(*completed, 8);
    completed.reset();
    allocator.reset();
    first.join();
    second.join();
  }
}

}  // namespace
}  // namespace raggrad::testing
