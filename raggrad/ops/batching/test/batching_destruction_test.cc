// Runtimes that are destroyed by a callback, or while other threads cancel. When the destructor has returned, all
// callbacks have run, and the allocator, callbacks and operands are not touched any more.
#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <thread>

#include "raggrad/ops/batching/test/waiting_calls.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

using std::chrono::milliseconds;

// Counts its uses after the end of the runtime.
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

// Makes calls; the first callback destroys the runtime.
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

  // Keeps the result of a blocking call, whose memory goes back to the allocator after all checks.
  void Keep(Result<BatchOutput> result) { kept_.push_back(std::move(result)); }

  void Expect(const std::function<void(Scene&)>& act) {
    act(*this);
    ASSERT_TRUE(Eventually([&] { return allocator_.ended.load(); })) << "no callback has destroyed the runtime";
    EXPECT_EQ(completed_before_end_, begun_) << "callbacks that have run when the destructor returns";
    EXPECT_EQ(completed_, begun_);
    std::this_thread::sleep_for(milliseconds(5));
    EXPECT_EQ(allocator_.late, 0) << "the allocator or a completion is used after the destructor has returned";
  }

 private:
  // Destroyed with its completion. The completion that destroys the runtime may outlive it, all others must not.
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
       EXPECT_EQ(result->bytes(), 0U) << "a result without rows needs no memory, so the allocator may be gone";
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

// Another thread cancels, and is freeing a piece when the runtime is destroyed.
TEST(BatchingDestruction, WaitsForAThreadThatCancels) {
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

// The race itself, many times, for sanitizers.
TEST(BatchingDestruction, WhileOtherThreadsCancel) {
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
