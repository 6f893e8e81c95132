// The base of *_model_test.cc: random calls, cancellations, deadlines and closes against a serial model. After every
// step the same calls must have ended, with the same results.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "raggrad/ops/batching/test/test_calls.h"
#include "raggrad/ops/batching/test/test_random.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {

// One runtime and its model, whose EndWait(number, code) and Close() return the calls that end, and how. Call number n
// has the n-th operands, a Made, whose waiting() is that of the call.
template <class Model, class Made, class Output>
class ModelRound {
 public:
  static constexpr int64_t kSteps = 1000;  // then everything is closed and checked

  explicit ModelRound(uint64_t seed) : random_(seed) { context_.allocator = &allocator_; }
  virtual ~ModelRound() = default;

  void Play() {
    {
      BatchingRuntime runtime(context_);
      runtime_ = &runtime;
      for (int64_t step = 0; step < kSteps && !::testing::Test::HasFailure(); ++step) {
        SCOPED_TRACE("step " + std::to_string(step));
        const int64_t kind = random_.Below(100);
        if (kind < 80) {
          Call();
        } else if (kind < 98) {
          Cancel();
        } else if (kind < 99) {
          ExpectStatistics();
        } else {
          Close();
        }
      }
      Close();
    }
    log_ = std::make_unique<CallLog<Output>>();  // drops the results before the allocator is checked
  }

 protected:
  using Ends = decltype(std::declval<Model&>().Close());
  using End = typename Ends::value_type;

  virtual void Call() = 0;   // Make and Run
  virtual void Close() = 0;  // closes the resource, and expects the ends that the model says
  virtual void ExpectStatistics() = 0;
  virtual void ExpectOutput(const End& end, const Output& output) = 0;       // of a call that succeeded
  virtual std::string ErrorText(const End&) const { return std::string(); }  // part of the message

  bool OneIn(int64_t n) { return random_.Below(n) == 0; }
  int next() const { return static_cast<int>(made_.size()); }
  Made& made(int call) { return made_[static_cast<size_t>(call)]; }
  const Result<Output>* Find(int call) const { return log_->Find(call); }

  // Keeps the operands of the next call and decides how it waits: most calls can be cancelled, some are already.
  Made& Make(Made operands) {
    Made& made = made_.emplace_back(std::move(operands));
    Waiting& waiting = made.waiting();
    if (!OneIn(4)) waiting.cancellation.emplace();
    cancelled_ = waiting.cancellation && OneIn(20);
    no_time_ = !cancelled_ && OneIn(20);
    if (cancelled_) waiting.cancellation->Cancel();
    if (no_time_) waiting.timeout = WaitTime(-random_.Below(2));
    return made;
  }
  bool cancelled() const { return cancelled_; }

  // Makes the last call, by sync() -> Result or by async(completion). It must end the calls `ends`.
  template <class Sync, class Async>
  void Run(Ends ends, const Sync& sync, const Async& async) {
    const int number = next() - 1;
    const bool waits = std::ranges::find(ends, number, &End::call) == ends.end();
    if (!waits && OneIn(2)) {
      log_->Record(number)(sync());
    } else {
      async(log_->Record(number));
    }
    if (waits && no_time_) {
      ASSERT_NE(log_->Await(number), nullptr);
      for (const End& end : model_.EndWait(number, Code::kDeadlineExceeded)) ends.push_back(end);
    }
    ExpectEnds(ends);
  }

  void ExpectEnds(const Ends& ends) {
    std::vector<int> expected;
    for (const End& end : ends) {
      expected.push_back(end.call);
      const Result<Output>* const result = Find(end.call);
      ASSERT_NE(result, nullptr) << "call " << end.call << " still waits";
      ASSERT_THAT(*result, StatusIs(end.code, ::testing::HasSubstr(ErrorText(end)))) << "call " << end.call;
    }
    EXPECT_THAT(log_->TakeNew(), ::testing::UnorderedElementsAreArray(expected));
    for (const End& end : ends) {
      SCOPED_TRACE("call " + std::to_string(end.call));
      if (end.code == Code::kOk) ExpectOutput(end, **Find(end.call));
    }
  }

  Generator random_;
  CountingAllocator allocator_;
  Context context_;
  BatchingRuntime* runtime_ = nullptr;
  Model model_;
  std::deque<Made> made_;

 private:
  // Ends the wait of one of the last calls. If that has ended already, nothing happens.
  void Cancel() {
    if (made_.empty()) return;
    const int number = next() - 1 - static_cast<int>(random_.Below(std::min(next(), 10)));
    const auto& token = made(number).waiting().cancellation;
    if (!token) return;
    token->Cancel();
    ExpectEnds(model_.EndWait(number, Code::kCancelled));
  }

  bool cancelled_ = false;
  bool no_time_ = false;
  std::unique_ptr<CallLog<Output>> log_ = std::make_unique<CallLog<Output>>();
};

#if defined(RAGGRAD_SANITIZED)  // all would take 50 s, and a step's faults of memory are the same in every round
inline constexpr int64_t kShareOfSteps = 4;
#else
inline constexpr int64_t kShareOfSteps = 1;
#endif

template <class Round>
void PlayRounds() {
  const uint64_t seed = TestSeed();
  const int64_t last = ModelSteps() / kShareOfSteps;
  for (int64_t steps = 0; steps < last && !::testing::Test::HasFailure(); steps += Round::kSteps) {
    SCOPED_TRACE("round " + std::to_string(steps / Round::kSteps));
    Round(seed + static_cast<uint64_t>(steps)).Play();
  }
}

}  // namespace raggrad::testing
