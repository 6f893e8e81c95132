// All orders of arrival of batches of up to five pieces, times every single fault at every position, against the serial
// models. For UnbatchGrad also against rules that do not use the model.
#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>

#include "raggrad/ops/batching/test/test_calls.h"
#include "raggrad/ops/batching/test/unbatch_grad_model.h"
#include "raggrad/ops/batching/test/unbatch_model.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

#if defined(RAGGRAD_SANITIZED)  // five would take 100 s
constexpr int kMostPieces = 4;
#else
constexpr int kMostPieces = 5;
#endif

// Calls f(order) for every order of 0 .. pieces - 1.
template <class F>
void ForEachOrder(int pieces, const F& f) {
  std::vector<int> order(static_cast<size_t>(pieces));
  std::iota(order.begin(), order.end(), 0);
  do {
    f(order);
  } while (std::ranges::next_permutation(order).found);
}

std::string Text(const std::vector<int>& order) { return ::testing::PrintToString(order); }

enum class Fault {
  kNone,
  kDType,            // the piece has another type
  kUnsupported,      // the piece has a type that cannot be joined
  kRank,             // the piece has another rank
  kShape,            // the piece has another inner shape
  kScalar,           // the piece is a scalar; then the call is made correctly
  kId,               // the id is a vector; then the call is made correctly
  kIndex,            // the batch_index of an owner is broken; then the call is made correctly
  kRepeatedKey,      // an owner lists a key twice; then the call is made correctly
  kDuplicate,        // the piece comes twice
  kMissing,          // the piece does not come
  kCancel,           // the owner is cancelled after that many pieces
  kCancelledBefore,  // the owner's token is cancelled before it comes
  kDeadline,         // the owner's deadline is over as soon as it waits
  kClose,            // the resource is closed after that many pieces
};
constexpr Fault kLastFault = Fault::kClose;

// The number of positions in a batch where a fault can be.
int64_t Positions(Fault fault, int pieces) {
  return fault == Fault::kNone || fault == Fault::kCancelledBefore || fault == Fault::kDeadline ? 1 : pieces;
}

// UnbatchGrad calls with keys 100, 101, ..., made in `order`; that of `owner` has the index.
class GradScenario {
 public:
  GradScenario(BatchingRuntime& runtime, const std::vector<int>& order, int owner, Fault fault, size_t position)
      : runtime_(runtime), order_(order), owner_(owner), fault_(fault), position_(position) {}

  void Play() {
    for (size_t i = 0; i < order_.size() && !::testing::Test::HasFailure(); ++i) {
      const bool here = i == position_;
      const int piece = order_[i];
      if (here && fault_ == Fault::kMissing) continue;
      if (here && IsRefused()) Call(piece, /*faulty=*/true);
      Call(piece, here && !IsRefused());
      if (here && fault_ == Fault::kDuplicate) Call(piece, false);
      if (here && fault_ == Fault::kCancel) {
        token_.Cancel();
        ExpectEnds(model_.EndWait(owner_call_, Code::kCancelled));
      }
      if (here && fault_ == Fault::kClose) Close();
    }
    ExpectWhatAUserExpects();
    Close();
    EXPECT_EQ(log_.size(), made_.size()) << "not every call has ended";
  }

 private:
  // Whether the faulty call is refused without a trace; it is then made again, correctly.
  bool IsRefused() const {
    return fault_ == Fault::kScalar || fault_ == Fault::kId || fault_ == Fault::kIndex || fault_ == Fault::kRepeatedKey;
  }

  std::shared_ptr<const Tensor> Piece(int piece, bool faulty) const {
    if (faulty && fault_ == Fault::kDType) {
      return std::make_shared<const Tensor>(TensorOf(std::vector<int32_t>(2), Shape{1, 2}));
    }
    if (faulty && fault_ == Fault::kUnsupported) {
      return std::make_shared<const Tensor>(TensorOfBytes(DType::kQInt8, Shape{1, 2}, "ab"));
    }
    if (faulty && fault_ == Fault::kRank) {
      return std::make_shared<const Tensor>(TensorOf(std::vector<float>(2), Shape{1, 2, 1}));
    }
    if (faulty && fault_ == Fault::kScalar) {
      return std::make_shared<const Tensor>(TensorOf(std::vector<float>(1), Shape{}));
    }
    return FloatPiece(1 + piece % 3, faulty && fault_ == Fault::kShape ? 3 : 2, static_cast<float>(10 * piece));
  }

  std::vector<int64_t> Keys(int piece, bool faulty) const {
    if (piece != owner_) return {};
    std::vector<int64_t> keys(order_.size());
    std::iota(keys.begin(), keys.end(), 100);
    if (faulty && fault_ == Fault::kRepeatedKey) keys.push_back(keys.front());
    return keys;
  }

  void Call(int piece, bool faulty) {
    const auto number = static_cast<int>(made_.size());
    GradOperands& operands = made_.emplace_back(GradOperands(100 + piece, Piece(piece, faulty), Keys(piece, faulty)));
    UnbatchGradCall& call = operands.call();
    if (faulty && fault_ == Fault::kId) call.id.shape = Shape{1};
    if (faulty && fault_ == Fault::kIndex) {
      operands.SetIndex(std::make_shared<const Tensor>(TensorOf<int64_t>({1}, Shape{1})));
    }
    if (piece == owner_ && owner_call_ < 0 && !(faulty && IsRefused())) owner_call_ = number;
    call.waiting.cancellation = token_;
    if (fault_ == Fault::kCancelledBefore) token_.Cancel();
    const bool no_time = fault_ == Fault::kDeadline;
    if (no_time) call.waiting.timeout = WaitTime(0);

    const bool cancelled = token_.cancelled();
    ModelEnds ends = model_.Call(number, call, cancelled);
    runtime_.UnbatchGradAsync(call, log_.Record(number));
    const bool waits = ends.empty() || ends.back().call != number;
    if (waits && no_time) {
      ASSERT_NE(log_.Await(number), nullptr);
      for (const ModelEnd& end : model_.EndWait(number, Code::kDeadlineExceeded)) ends.push_back(end);
    }
    ExpectEnds(ends);
  }

  void Close() {
    static_cast<void>(runtime_.Close(ResourceKind::kUnbatchGrad, {"", "r"}));
    ExpectEnds(model_.Close());
  }

  void ExpectEnds(const ModelEnds& ends) {
    std::vector<int> expected;
    for (const ModelEnd& end : ends) {
      expected.push_back(end.call);
      const Result<Tensor>* const result = log_.Find(end.call);
      ASSERT_NE(result, nullptr) << "call " << end.call << " still waits";
      ASSERT_THAT(*result, StatusIs(end.code, ::testing::HasSubstr(end.text))) << "call " << end.call;
      if (end.code != Code::kOk) continue;
      std::vector<TensorView> pieces;
      for (const int call : end.joined) pieces.push_back(made_[static_cast<size_t>(call)].grad().view());
      const TensorView& own = made_[static_cast<size_t>(end.call)].grad().view();
      EXPECT_EQ(DifferenceOrEmpty((*result)->view(), JoinedByHand(own, pieces).view()), "") << "call " << end.call;
    }
    EXPECT_THAT(log_.TakeNew(), ::testing::UnorderedElementsAreArray(expected));
  }

  // Checks the results without the model.
  void ExpectWhatAUserExpects() {
    const Result<Tensor>* const owner = owner_call_ < 0 ? nullptr : log_.Find(owner_call_);
    const bool alone = order_.size() == 1;
    const bool owner_last = order_.back() == owner_;
    if (fault_ == Fault::kNone || IsRefused()) {
      // After a key that was listed twice a retry finds all pieces, because nothing was taken.
      ASSERT_NE(owner, nullptr);
      ASSERT_THAT(*owner, IsOk());
      int64_t rows = 0;
      for (size_t i = 0; i < order_.size(); ++i) rows += 1 + static_cast<int64_t>(i) % 3;
      EXPECT_EQ((*owner)->shape(), (Shape{rows, 2}));
    } else if (fault_ == Fault::kMissing) {
      EXPECT_EQ(owner, nullptr);  // it waits, or its call is the missing one
    } else if (fault_ == Fault::kDType || fault_ == Fault::kRank || fault_ == Fault::kShape) {
      EXPECT_THAT(*owner, StatusIs(alone ? Code::kOk : Code::kInvalidArgument, ::testing::_));
    } else if (fault_ == Fault::kUnsupported) {
      EXPECT_THAT(*owner, StatusIs(Code::kInvalidArgument, ::testing::_));
    } else if (fault_ == Fault::kDeadline) {
      EXPECT_THAT(*owner, StatusIs(owner_last ? Code::kOk : Code::kDeadlineExceeded, ::testing::_));
    } else if (fault_ == Fault::kCancelledBefore) {
      EXPECT_THAT(*owner, StatusIs(owner_last ? Code::kOk : Code::kCancelled, ::testing::_));
    }
    // A call that only brings a readable piece succeeds.
    for (size_t i = 0; i < made_.size(); ++i) {
      const Result<Tensor>* const result = log_.Find(static_cast<int>(i));
      const bool brings = made_[i].id() != 100 + owner_;
      if (brings && result != nullptr && !result->ok()) {
        EXPECT_TRUE(IsRefused() || fault_ == Fault::kDuplicate || fault_ == Fault::kUnsupported)
            << result->status().message();
      }
    }
  }

  BatchingRuntime& runtime_;
  const std::vector<int> order_;
  const int owner_;
  const Fault fault_;
  const size_t position_;
  int owner_call_ = -1;
  Cancellation token_;
  std::deque<GradOperands> made_;
  UnbatchGradModel model_;
  CallLog<Tensor> log_;
};

class SystematicGrad : public ::testing::TestWithParam<int> {};

TEST_P(SystematicGrad, EveryOrderAndFault) {
  const int pieces = GetParam();
  int64_t played = 0;
  BatchingRuntime runtime;
  ForEachOrder(pieces, [&](const std::vector<int>& order) {
    for (int owner = 0; owner < pieces; ++owner) {
      for (int fault = 0; fault <= static_cast<int>(kLastFault); ++fault) {
        for (int64_t position = 0; position < Positions(static_cast<Fault>(fault), pieces); ++position) {
          if (HasFailure()) return;
          SCOPED_TRACE("order " + Text(order) + ", owner " + std::to_string(owner) + ", fault " +
                       std::to_string(fault) + " at position " + std::to_string(position));
          ++played;
          GradScenario(runtime, order, owner, static_cast<Fault>(fault), static_cast<size_t>(position)).Play();
        }
      }
    }
  });
  RecordProperty("scenarios", static_cast<int>(played));
}

INSTANTIATE_TEST_SUITE_P(Pieces, SystematicGrad, ::testing::Range(1, kMostPieces + 1));

enum class UnbatchFault {
  kNone,
  kDType,        // the call expects another type
  kDuplicate,    // the call is made twice
  kMissing,      // the call is not made; if it is the owner's, no call gets rows
  kCancel,       // the call is cancelled as soon as it waits
  kDeadline,     // its deadline is over as soon as it waits
  kRepeatedKey,  // the owner lists a key twice; then the call is made correctly
  kNotListed,    // the owner is not among the rows
  kClose,        // the resource is closed after that many calls
};

void PlayUnbatch(BatchingRuntime& runtime, const std::vector<int>& order, int owner, UnbatchFault fault,
                 size_t position) {
  CallLog<Tensor> log;
  UnbatchModel model;
  std::deque<UnbatchOperands> made;
  const auto expect = [&](const UnbatchEnds& ends) {
    std::vector<int> expected;
    for (const UnbatchEnd& end : ends) {
      expected.push_back(end.call);
      const Result<Tensor>* const result = log.Find(end.call);
      ASSERT_NE(result, nullptr) << "call " << end.call << " still waits";
      ASSERT_THAT(*result, StatusIs(end.code, ::testing::_)) << "call " << end.call;
      if (end.code != Code::kOk) continue;
      TensorView rows = made[static_cast<size_t>(end.from)].batch.view();
      rows.data = rows.As<int32_t>() + end.begin;
      rows.shape = Shape{end.end - end.begin, 1};
      EXPECT_EQ(Difference((*result)->view(), rows), "");
    }
    EXPECT_THAT(log.TakeNew(), ::testing::UnorderedElementsAreArray(expected));
  };
  const auto call = [&](int piece, bool here, bool repeats_key) {
    const auto number = static_cast<int>(made.size());
    UnbatchOperands operands{100 + piece, {}, {}, {}, {}};
    for (int key = 0; piece == owner && key < static_cast<int>(order.size()); ++key) {
      if (here && fault == UnbatchFault::kNotListed && key == owner) continue;
      operands.keys.push_back(100 + key);
      operands.rows.push_back(key % 3);
    }
    if (repeats_key) operands.keys.push_back(100), operands.rows.push_back(1);
    const int64_t rows = piece == owner ? 12 : 0;
    std::vector<int32_t> values(static_cast<size_t>(rows));
    std::iota(values.begin(), values.end(), 0);
    operands.batch = here && fault == UnbatchFault::kDType && piece != owner
                         ? TensorOf(std::vector<float>(), Shape{0, 1})
                         : TensorOf(values, Shape{rows, 1});
    std::vector<int64_t> index;
    for (size_t i = 0; i < operands.keys.size(); ++i)
      index.insert(index.end(), {operands.keys[i], 0, operands.rows[i]});
    operands.index = TensorOf(index, Shape{static_cast<int64_t>(operands.keys.size()), 3});
    const Cancellation token;
    operands.waiting().cancellation = token;
    const bool no_time = here && fault == UnbatchFault::kDeadline;
    if (no_time) operands.waiting().timeout = WaitTime(0);
    made.push_back(std::move(operands));
    UnbatchEnds ends = model.Call(number, made.back(), false);
    runtime.UnbatchAsync(made.back().call(), log.Record(number));
    const bool waits = std::ranges::find(ends, number, &UnbatchEnd::call) == ends.end();
    if (waits && no_time) {
      ASSERT_NE(log.Await(number), nullptr);
      for (const UnbatchEnd& end : model.EndWait(number, Code::kDeadlineExceeded)) ends.push_back(end);
    }
    expect(ends);
    if (here && fault == UnbatchFault::kCancel) {
      token.Cancel();
      expect(model.EndWait(number, Code::kCancelled));
    }
  };
  const auto close = [&] {
    static_cast<void>(runtime.Close(ResourceKind::kUnbatch, {"", "u"}));
    expect(model.Close());
  };
  for (size_t i = 0; i < order.size(); ++i) {
    const bool here = i == position;
    if (here && fault == UnbatchFault::kMissing) continue;
    if (here && fault == UnbatchFault::kRepeatedKey && order[i] == owner) call(order[i], here, true);
    call(order[i], here, false);
    if (here && fault == UnbatchFault::kDuplicate) call(order[i], here, false);
    if (here && fault == UnbatchFault::kClose) close();
  }
  if (fault == UnbatchFault::kNone || fault == UnbatchFault::kRepeatedKey) {
    const auto statistics = runtime.Statistics(ResourceKind::kUnbatch, {"", "u"});
    ASSERT_THAT(statistics, IsOk());
    EXPECT_EQ(statistics->pieces, 0);
    EXPECT_EQ(statistics->waiters, 0);
  }
  close();
  EXPECT_EQ(log.size(), made.size()) << "not every call has ended";
}

TEST(SystematicUnbatch, EveryOrderAndFault) {
  BatchingRuntime runtime;
  for (int pieces = 1; pieces <= kMostPieces; ++pieces) {
    ForEachOrder(pieces, [&](const std::vector<int>& order) {
      for (int fault = 0; fault <= static_cast<int>(UnbatchFault::kClose); ++fault) {
        for (size_t position = 0; position < order.size(); ++position) {
          if (HasFailure()) return;
          const int owner = pieces - 1;  // any will do, because all orders are tested
          SCOPED_TRACE("order " + Text(order) + ", fault " + std::to_string(fault) + " at position " +
                       std::to_string(position));
          PlayUnbatch(runtime, order, owner, static_cast<UnbatchFault>(fault), position);
        }
      }
    });
  }
}

}  // namespace
}  // namespace raggrad::testing
