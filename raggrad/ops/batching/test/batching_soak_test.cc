// Many threads train together: each step goes through Batch, Unbatch and UnbatchGrad, in mixed sizes, and one call in
// twenty is faulty. Nothing hangs, no piece is lost or handed out twice, memory stays flat, and the statistics add up.
// RAGGRAD_SOAK_SECONDS sets the duration (default 5), RAGGRAD_SOAK_THREADS the number of threads.
#include <gmock/gmock.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>
#include <unordered_map>

#include "raggrad/ops/batching/test/test_calls.h"
#include "raggrad/ops/batching/test/test_random.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

using std::chrono::seconds;

constexpr int kGroups = 3;
constexpr int64_t kColumns[kGroups] = {1, 64, 4096};
constexpr int64_t kMaxBatchSize[kGroups] = {32, 16, 8};
constexpr int64_t kOneFaultIn = 20;
// A resource keeps the timeout of the call that makes it, so all calls have the same.
constexpr int64_t kUnbatchTimeoutMicros = 1'000'000'000;

#if defined(RAGGRAD_SANITIZED)
constexpr bool kMemoryIsTheProgramsOwn = false;  // sanitizers keep freed memory
#else
constexpr bool kMemoryIsTheProgramsOwn = true;
#endif

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * 4096;
}

// Facts about the calls of a batch that the threads tell each other outside the library. A call is forgotten when both
// its thread and the owner of its batch have finished with it.
class Registry {
 public:
  // A fault is about to reach the batch of this call, so the batch may fail.
  void Spoil(int64_t id) {
    const std::lock_guard lock(mutex_);
    calls_[id].spoiled = true;
  }
  bool Spoiled(const std::vector<int64_t>& ids) {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(ids, [&](int64_t id) { return calls_[id].spoiled; });
  }
  // The owner of these calls waits with this token.
  void SetOwner(const std::vector<int64_t>& ids, const Cancellation& token) {
    const std::lock_guard lock(mutex_);
    for (const int64_t id : ids) calls_[id].owner = token;
  }
  void CancelOwnerOf(int64_t id) {
    std::optional<Cancellation> owner;
    while (!owner) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      const std::lock_guard lock(mutex_);
      owner = calls_[id].owner;
    }
    owner->Cancel();
  }
  void Leave(const std::vector<int64_t>& ids) {
    const std::lock_guard lock(mutex_);
    for (const int64_t id : ids) {
      if (++calls_[id].left == 2) calls_.erase(id);
    }
  }

 private:
  struct Call {
    bool spoiled = false;
    std::optional<Cancellation> owner = {};
    int left = 0;
  };

  std::mutex mutex_;
  std::unordered_map<int64_t, Call> calls_;
};

struct Totals {
  std::atomic<int64_t> steps{0}, batches{0}, faults{0}, given{0}, collected{0}, spoiled_batches{0};
};

class Worker {
 public:
  Worker(BatchingRuntime& runtime, Registry& registry, Totals& totals, int number)
      : runtime_(runtime),
        registry_(registry),
        totals_(totals),
        random_(TestSeed() + static_cast<uint64_t>(number)),
        group_(number % kGroups),
        columns_(kColumns[group_]),
        next_tag_(number * 1'000'000'000'000) {}

  void Step() {
    const int64_t rows = 1 + random_.Below(3);
    ++next_tag_;
    const Tensor x = Rows(rows, next_tag_);
    BatchCall batch{.resource = Name(),
                    .in_tensors = {{x.view()}},
                    .max_batch_size = kMaxBatchSize[group_],
                    .batch_timeout_micros = 2000};
    if (Fault()) SpoilBatchCall(batch);
    Result<BatchOutput> batched = runtime_.Batch(batch);
    if (!batched.ok()) {
      EXPECT_TRUE(batch.waiting.cancellation || batch.waiting.timeout) << batched.status().message();
      return;
    }
    const int64_t id = *batched->id.As<int64_t>();
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < batched->batch_index.shape()[0]; ++i) {
      ids.push_back(batched->batch_index.As<int64_t>()[3 * i]);
    }
    if (Fault()) MakeUselessCalls(*batched, id);
    UnbatchCall unbatch{Name(), batched->batched_tensors[0].view(), batched->batch_index.view(), TensorView::Scalar(id),
                        kUnbatchTimeoutMicros};
    const Result<Tensor> mine = runtime_.Unbatch(unbatch);
    ASSERT_THAT(mine, IsOk());
    EXPECT_EQ(Difference(mine->view(), x.view()), "");
    if (ids.empty()) {
      Give(*batched, id, rows);
    } else {
      Collect(*batched, id, ids, rows);
    }
    registry_.Leave({id});
    ++totals_.steps;
  }

 private:
  bool Fault() {
    const bool fault = random_.Below(kOneFaultIn) == 0;
    if (fault) ++totals_.faults;
    return fault;
  }

  ResourceName Name() const { return {"soak", std::to_string(group_)}; }

  // Rows full of `tag`.
  Tensor Rows(int64_t rows, int64_t tag) const {
    return TensorOf(std::vector<int64_t>(static_cast<size_t>(rows * columns_), tag), Shape{rows, columns_});
  }

  void SpoilBatchCall(BatchCall& batch) {
    if (random_.Below(2) == 0) {
      batch.waiting.timeout = WaitTime(random_.Below(2000));
    } else {
      batch.waiting.cancellation.emplace().Cancel();
    }
  }

  // Calls that fail, which no other call may notice.
  void MakeUselessCalls(const BatchOutput& batched, int64_t id) {
    UnbatchCall unbatch{Name(), batched.batched_tensors[0].view(), batched.batch_index.view(), batched.id.view(),
                        kUnbatchTimeoutMicros};
    const int64_t ids[] = {id, id};
    unbatch.id = TensorView::Vector<int64_t>(ids);
    EXPECT_THAT(runtime_.Unbatch(unbatch), StatusIs(Code::kInvalidArgument, ::testing::_));
    const int64_t stranger = static_cast<int64_t>(random_.Bits());
    const Tensor none = TensorOf<int64_t>({}, Shape{0, columns_});
    const auto no_index = Index({});
    unbatch = {Name(),
               none.view(),
               no_index->view(),
               TensorView::Scalar(stranger),
               kUnbatchTimeoutMicros,
               {.timeout = WaitTime(500)}};
    EXPECT_THAT(runtime_.Unbatch(unbatch), StatusIs(Code::kDeadlineExceeded, ::testing::_));
    UnbatchGradCall grad = GradCall(batched, batched.id.view(), none);
    grad.grad.view.shape = Shape{};
    EXPECT_THAT(runtime_.UnbatchGrad(grad), StatusIs(Code::kInvalidArgument, ::testing::_));
  }

  UnbatchGradCall GradCall(const BatchOutput& batched, const TensorView& id, const Tensor& grad) const {
    return {Name(), batched.batched_tensors[0].view(), batched.batch_index.view(), {grad.view()}, id};
  }

  // Brings the owner its piece, or a fault.
  void Give(const BatchOutput& batched, int64_t id, int64_t rows) {
    const Tensor grad = Rows(rows, next_tag_);
    UnbatchGradCall call = GradCall(batched, batched.id.view(), grad);
    if (!Fault()) {
      ASSERT_THAT(runtime_.UnbatchGrad(call), IsOk());
      ++totals_.given;
      return;
    }
    const int64_t kind = random_.Below(3);
    if (kind == 0) {  // the piece does not come
      registry_.Spoil(id);
      registry_.CancelOwnerOf(id);
    } else if (kind == 1) {  // the piece does not fit
      registry_.Spoil(id);
      const Tensor misfit = TensorOf<int64_t>({1}, Shape{1, 1, 1});
      call.grad = {misfit.view()};
      ASSERT_THAT(runtime_.UnbatchGrad(call), IsOk());
      ++totals_.given;
    } else {  // the piece comes twice: refused, or, if the batch is done already, stored until it expires
      ASSERT_THAT(runtime_.UnbatchGrad(call), IsOk());
      ++totals_.given;
      if (runtime_.UnbatchGrad(call).ok()) ++totals_.given;
    }
  }

  void Collect(const BatchOutput& batched, int64_t id, const std::vector<int64_t>& ids, int64_t rows) {
    const Tensor grad = Rows(rows, next_tag_);
    UnbatchGradCall call = GradCall(batched, batched.id.view(), grad);
    const Cancellation token;
    call.waiting = {.timeout = seconds(600), .cancellation = token};
    call.strict = true;
    if (Fault()) {
      registry_.Spoil(id);
      if (random_.Below(2) == 0) {
        token.Cancel();
      } else {
        call.waiting.timeout = WaitTime(random_.Below(500));
      }
    }
    registry_.SetOwner(ids, token);
    const Result<Tensor> joined = runtime_.UnbatchGrad(call);
    ++totals_.batches;
    if (!joined.ok()) {
      EXPECT_TRUE(registry_.Spoiled(ids)) << joined.status().message();
      ++totals_.spoiled_batches;
    } else {
      ExpectJoined(batched.batch_index, *joined);
    }
    registry_.Leave(ids);
  }

  void ExpectJoined(const Tensor& index, const Tensor& joined) {
    const int64_t calls = index.shape()[0];
    EXPECT_EQ(joined.shape()[0], index.As<int64_t>()[3 * calls - 1]) << "rows are missing, or there are too many";
    std::set<int64_t> tags;
    for (int64_t i = 0; i < calls; ++i) {
      const int64_t* const entry = index.As<int64_t>() + 3 * i;
      const int64_t* const piece = joined.As<int64_t>() + entry[1] * columns_;
      const auto elements = (entry[2] - entry[1]) * columns_;
      EXPECT_TRUE(std::all_of(piece, piece + elements, [&](int64_t value) { return value == *piece; }));
      tags.insert(*piece);
    }
    EXPECT_EQ(static_cast<int64_t>(tags.size()), calls) << "a piece came twice";
    totals_.collected += calls - 1;  // the owner's own piece does not count as given
  }

  BatchingRuntime& runtime_;
  Registry& registry_;
  Totals& totals_;
  Generator random_;
  const int group_;
  const int64_t columns_;
  int64_t next_tag_;
};

// Watches the other threads and their memory. Ends the program if they make no progress.
class Observer {
 public:
  Observer(const Totals& totals, const CountingAllocator& allocator, seconds duration)
      : totals_(totals), allocator_(allocator), duration_(duration) {}

  bool time_is_up() const { return Elapsed() >= duration_; }

  void Look() {
    const auto elapsed = Elapsed();
    Most& most = elapsed < duration_ / 2 ? early_ : late_;
    most.held = std::max(most.held, static_cast<int64_t>(allocator_.live_bytes()));
    most.resident = std::max(most.resident, ResidentBytes());
    if (totals_.steps != last_steps_) {
      last_steps_ = totals_.steps;
      last_progress_ = elapsed;
    } else if (elapsed - last_progress_ > seconds(120)) {
      std::fprintf(stderr, "no step was finished for two minutes: it hangs\n");
      std::abort();
    }
    if (elapsed < next_report_) return;
    next_report_ += seconds(60);
    std::cout << elapsed / seconds(1) << " s: " << totals_.steps << " steps; at most held " << most.held / 1024
              << " KiB, resident " << most.resident / 1024 << " KiB" << std::endl;
  }

  void ExpectFlatMemory() const {
    std::cout << "held: at most " << early_.held / 1024 << " KiB in the first half, " << late_.held / 1024
              << " KiB in the second; resident: " << early_.resident / 1024 << " and " << late_.resident / 1024
              << " KiB" << std::endl;
    // Held memory is proportional to the calls of half a second, so it depends on the load of the machine: 30 MiB at
    // full speed. A leak of one row in a hundred steps would be ten times that in half an hour.
    EXPECT_LE(late_.held, early_.held + (int64_t{64} << 20));
    if (kMemoryIsTheProgramsOwn) {
      EXPECT_LE(late_.resident, early_.resident + (int64_t{128} << 20));
    }
  }

 private:
  struct Most {
    int64_t held = 0, resident = 0;
  };
  using Clock = std::chrono::steady_clock;

  Clock::duration Elapsed() const { return Clock::now() - begin_; }

  const Totals& totals_;
  const CountingAllocator& allocator_;
  const seconds duration_;
  const Clock::time_point begin_ = Clock::now();
  Most early_, late_;
  int64_t last_steps_ = -1;
  Clock::duration last_progress_{};
  Clock::duration next_report_ = seconds(60);
};

// All UnbatchGrad resources together.
ResourceStatistics GradStatistics(const BatchingRuntime& runtime) {
  ResourceStatistics sum;
  for (int group = 0; group < kGroups; ++group) {
    const auto statistics = runtime.Statistics(ResourceKind::kUnbatchGrad, {"soak", std::to_string(group)});
    sum.pieces += statistics->pieces;
    sum.bytes += statistics->bytes;
    sum.pieces_dropped += statistics->pieces_dropped;
    sum.pieces_expired += statistics->pieces_expired;
  }
  return sum;
}

void ExpectStatisticsAddUp(const BatchingRuntime& runtime, const Totals& totals) {
  for (int group = 0; group < kGroups; ++group) {
    for (const ResourceKind kind : {ResourceKind::kBatch, ResourceKind::kUnbatch, ResourceKind::kUnbatchGrad}) {
      const auto statistics = runtime.Statistics(kind, {"soak", std::to_string(group)});
      ASSERT_THAT(statistics, IsOk());
      EXPECT_EQ(statistics->calls, statistics->succeeded + statistics->failed);
      EXPECT_EQ(statistics->waiters, 0);
    }
  }
  for (int i = 0; i < 600 && GradStatistics(runtime).pieces > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  const ResourceStatistics left = GradStatistics(runtime);
  EXPECT_EQ(left.pieces, 0) << "unclaimed pieces do not expire";
  EXPECT_EQ(left.bytes, 0);
  // Pieces that were given and not collected have expired or were dropped with a batch. A failed owner's own piece may
  // have been dropped, too.
  const int64_t gone = left.pieces_dropped + left.pieces_expired;
  EXPECT_GE(gone, totals.given - totals.collected) << "pieces were lost";
  EXPECT_LE(gone, totals.given - totals.collected + totals.spoiled_batches) << "pieces were dropped twice";
  std::cout << totals.steps << " steps, " << totals.batches << " batches (" << totals.spoiled_batches << " spoiled), "
            << totals.faults << " faults, " << totals.given << " pieces given, " << totals.collected << " collected, "
            << left.pieces_dropped << " dropped, " << left.pieces_expired << " expired" << std::endl;
}

TEST(BatchingSoakTest, NothingHangsLeaksOrIsLost) {
  const auto duration = seconds(NumberFromEnvironment("RAGGRAD_SOAK_SECONDS", 5));
  const auto threads = NumberFromEnvironment("RAGGRAD_SOAK_THREADS", 32);
  CountingAllocator allocator;
  Totals totals;
  {
    Context ctx;
    ctx.allocator = &allocator;
    BatchingRuntime runtime(ctx, {.max_piece_age = std::chrono::milliseconds(500)});
    Registry registry;
    std::atomic<bool> stop{false};
    std::atomic<int64_t> running{threads};
    std::vector<std::thread> workers;
    for (int i = 0; i < threads; ++i) {
      workers.emplace_back([&, i] {
        for (Worker worker(runtime, registry, totals, i); !stop && !::testing::Test::HasFailure();) worker.Step();
        --running;
      });
    }
    Observer observer(totals, allocator, duration);
    for (; running > 0; std::this_thread::sleep_for(std::chrono::milliseconds(100))) {
      observer.Look();
      if (observer.time_is_up()) stop = true;
    }
    for (std::thread& worker : workers) worker.join();
    ExpectStatisticsAddUp(runtime, totals);
    observer.ExpectFlatMemory();
  }
  EXPECT_GT(totals.steps, 0);
}

}  // namespace
}  // namespace raggrad::testing
