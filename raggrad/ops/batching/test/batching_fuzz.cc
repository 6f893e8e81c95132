// Plays scripts of calls: Batch, Unbatch and UnbatchGrad with good and hostile operands, cancellations, deadlines,
// closes, new limits, memory that runs out, and callbacks that call back, cancel, close and destroy the runtime. While
// a script does only what the models of this family define, every step must end the calls that the model says, with its
// results. Whatever a script does, every call completes exactly once and all memory is freed.
#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "raggrad/ops/batching/batching.h"
#include "raggrad/ops/batching/test/batch_model.h"
#include "raggrad/ops/batching/test/fuzz_results.h"
#include "raggrad/ops/batching/test/unbatch_grad_model.h"
#include "raggrad/ops/batching/test/unbatch_model.h"
#include "raggrad/testing/fuzz_driver.h"
#include "raggrad/testing/fuzz_input.h"
#include "raggrad/testing/fuzz_operand.h"

namespace raggrad::fuzz {
namespace {

using testing::BatchOperands;
using testing::TensorOf;
using testing::UnbatchOperands;

constexpr int64_t kKeys = 6;  // few, so that calls meet

// The operands of a call. One of the three is set.
struct Made {
  std::optional<UnbatchGradCall> grad;
  std::optional<UnbatchOperands> unbatch;
  std::optional<BatchOperands> batch;
  std::deque<Operand> operands = {};  // of `grad`
  std::unique_ptr<int64_t> id = {};
  Waiting waiting = {};
};

class Script {
 public:
  explicit Script(const FuzzInput& in)
      : in_(in), fail_at_(in_.OneIn(8) ? in_.Below(40) : -1), memory_(size_t{64} << 20, fail_at_) {}

  void Play();

 private:
  void Step();
  void CallUnbatchGrad();
  void CallUnbatch();
  void CallBatch();
  void Cancel();
  void Close();
  void ChangeLimits();

  void ExpectEnd(const testing::ModelEnd& end, const Ended& ended);
  void ExpectEnd(const testing::UnbatchEnd& end, const Ended& ended);
  void ExpectEnd(const testing::BatchEnd& end, const Ended& ended);
  template <class Ends>
  void ExpectEnds(const Ends& ends);

  // Decides how the next call waits.
  Made& Make();
  // The extra work of the next callback; usually none.
  std::function<void()> Misbehaviour();
  // Makes the last call, by sync() -> Result or by async(completion). While modelled_, it must end the calls `ends`.
  template <class T, class Model, class Ends, class Sync, class Async>
  void Run(Model& model, Ends ends, const Sync& sync, const Async& async);

  FuzzInput in_;
  const int64_t fail_at_;  // request to the allocator; negative: none
  testing::ExactAllocator memory_;
  Log log_;
  std::unique_ptr<BatchingRuntime> runtime_;
  BatchingRuntime* used_ = nullptr;  // the same, for callbacks, even while it is being destroyed
  testing::UnbatchGradModel grad_model_;
  testing::UnbatchModel unbatch_model_;
  testing::BatchModel batch_model_;
  std::deque<Made> made_;
  bool modelled_ = fail_at_ < 0;  // everything so far is defined by the models
  bool cancelled_ = false, no_time_ = false;
};

void Script::Play() {
  Context ctx;
  ctx.allocator = &memory_;
  ctx.executor = &SerialExecutor();
  runtime_ = std::make_unique<BatchingRuntime>(ctx);
  used_ = runtime_.get();
  for (int64_t steps = in_.Below(64); steps > 0 && runtime_ != nullptr; --steps) Step();
  runtime_.reset();
  if (log_.size() != made_.size()) Trap("script", "a call did not complete");
  const size_t held = made_.size();
  log_.Clear();
  made_.clear();
  if (memory_.live() != 0) Trap("script", "memory was not freed after " + std::to_string(held) + " calls");
}

void Script::Step() {
  switch (in_.Below(16)) {
    default:
      return CallUnbatchGrad();
    case 6:
    case 7:
    case 8:
      return CallUnbatch();
    case 9:
    case 10:
    case 11:
      return CallBatch();
    case 12:
    case 13:
      return Cancel();
    case 14:
      return Close();
    case 15:
      return ChangeLimits();
  }
}

Made& Script::Make() {
  Made& made = made_.emplace_back();
  const uint8_t how = in_.Byte();
  cancelled_ = how % 16 == 1;
  no_time_ = how % 16 == 2;
  if (how % 4 != 0) made.waiting.cancellation.emplace();
  if (cancelled_) made.waiting.cancellation->Cancel();
  if (no_time_) made.waiting.timeout = WaitTime(-(how / 128));
  return made;
}

std::function<void()> Script::Misbehaviour() {
  const int64_t kind = in_.Below(32);
  if (kind == 1) {  // calls back, with a call that need not wait
    return [this] {
      const float value = 1;
      const int64_t index[] = {1, 0, 1}, id = 1;
      const TensorView piece{&value, DType::kFloat32, Shape{1, 1}, Device::Cpu()};
      const Result<Tensor> alone = used_->UnbatchGrad(
          {{"", "within"}, piece, TensorView::Of(index, Shape{1, 3}), {piece}, TensorView::Scalar(id)});
      if (!alone.ok() && fail_at_ < 0 && alone.status().code() != Code::kCancelled) Trap("callback", "its call failed");
    };
  }
  if (kind == 2) {
    return [this] { static_cast<void>(used_->Statistics(ResourceKind::kBatch, {"", "b"})); };
  }
  if (kind < 3 || kind > 5) return [] {};
  modelled_ = false;
  if (kind == 3) {
    const auto which = static_cast<size_t>(in_.Byte()) % made_.size();
    return [token = made_[which].waiting.cancellation] {
      if (token) token->Cancel();
    };
  }
  if (kind == 4) {
    return [this] { used_->CloseAll(); };
  }
  return [this] { runtime_.reset(); };
}

template <class T, class Model, class Ends, class Sync, class Async>
void Script::Run(Model& model, Ends ends, const Sync& sync, const Async& async) {
  const int number = static_cast<int>(made_.size()) - 1;
  const auto is_mine = [&](const auto& end) { return end.call == number; };
  const bool waits = std::ranges::none_of(ends, is_mine);
  if (modelled_ && !waits && in_.Below(2) == 1) {
    log_.Add(number, Take(sync()));
  } else {
    // The misbehaviour comes first, because Log::Await lets the script go on with the runtime.
    async([this, number, misbehave = Misbehaviour()](Result<T> result) {
      misbehave();
      log_.Add(number, Take(std::move(result)));
    });
  }
  if (no_time_) log_.Await(number);
  if (!modelled_) return;
  if (no_time_ && waits) {
    for (const auto& end : model.EndWait(number, Code::kDeadlineExceeded)) ends.push_back(end);
  }
  ExpectEnds(ends);
}

template <class Ends>
void Script::ExpectEnds(const Ends& ends) {
  std::vector<int> fresh = log_.TakeFresh(), expected;
  for (const auto& end : ends) expected.push_back(end.call);
  std::ranges::sort(fresh);
  std::ranges::sort(expected);
  if (fresh != expected) Trap("model", "other calls have ended");
  for (const auto& end : ends) {
    const Ended& ended = *log_.Find(end.call);
    if (ended.status.code() != end.code) Trap("model", std::string(ended.status.message()) + ": another code");
    if (end.code == Code::kOk) ExpectEnd(end, ended);
  }
}

void Script::ExpectEnd(const testing::ModelEnd& end, const Ended& ended) {
  std::vector<TensorView> pieces;
  for (const int call : end.joined) pieces.push_back(made_[static_cast<size_t>(call)].grad->grad.view);
  ExpectRows(ended.outputs[0].view(), pieces, made_[static_cast<size_t>(end.call)].grad->grad.view);
}

void Script::ExpectEnd(const testing::UnbatchEnd& end, const Ended& ended) {
  const TensorView batch = made_[static_cast<size_t>(end.from)].unbatch->batch.view();
  const TensorView rows = RowsOf(batch, end.begin, end.end - end.begin);
  ExpectRows(ended.outputs[0].view(), {rows}, rows);
}

void Script::ExpectEnd(const testing::BatchEnd& end, const Ended& ended) {
  if (end.batch.empty()) return;
  const bool owner = end.call == end.batch.back();
  const BatchOperands& mine = *made_[static_cast<size_t>(end.call)].batch;
  for (size_t t = 0; t < mine.tensors.size(); ++t) {
    std::vector<TensorView> pieces;
    int64_t rows = 0;
    for (const int call : owner ? end.batch : std::vector<int>()) {
      pieces.push_back(made_[static_cast<size_t>(call)].batch->tensors[t].view());
      rows += pieces.back().dim(0);
    }
    for (; owner && rows < testing::BatchModel::Padded(rows); ++rows) pieces.push_back(RowsOf(pieces[0], 0, 1));
    ExpectRows(ended.outputs[t].view(), pieces, mine.tensors[t].view());
  }
}

void Script::CallUnbatchGrad() {
  Made& made = Make();
  const int number = static_cast<int>(made_.size()) - 1;
  made.id = std::make_unique<int64_t>(in_.Below(kKeys));
  const int64_t rows = in_.Below(4), columns = in_.OneIn(32) ? 3 : 2;
  const DType dtype = in_.OneIn(16) ? in_.DTypeOf(RaggedTypes{}) : DType::kFloat32;
  std::vector<int64_t> index;
  if (in_.Below(2) == 1) {  // an owner
    if (!in_.OneIn(8)) index.insert(index.end(), {*made.id, 0, rows});
    for (int64_t more = in_.Below(4); more > 0; --more) index.insert(index.end(), {in_.Below(kKeys), 0, in_.Below(3)});
  }
  const auto entries = static_cast<int64_t>(index.size() / 3);
  made.operands.emplace_back(in_, AnyTensor(in_, dtype, Shape{rows, columns}, rows * columns));
  made.operands.emplace_back(in_, TensorOf(index, Shape{entries, 3}));
  made.operands.emplace_back(in_, TensorOf<int64_t>({*made.id}, Shape{}));
  made.grad = UnbatchGradCall{.resource = {"", "r"},
                              .original_input = {nullptr, dtype, Shape{entries, 1}, Device::Cpu()},
                              .batch_index = made.operands[1].view,
                              .grad = {made.operands[0].view},
                              .id = made.operands[2].view,
                              .waiting = made.waiting};
  UnbatchGradCall& call = *made.grad;
  if (in_.OneIn(2)) call.grad.keep_alive = std::make_shared<int>(0);
  const bool undisturbed = std::ranges::all_of(made.operands, [](const Operand& operand) {
    return operand.readable && operand.view.shape == operand.tensor.shape() && operand.view.device.is_cpu();
  });
  call.strict = in_.OneIn(16);
  modelled_ = modelled_ && undisturbed && !call.strict && DTypeSize(dtype) > 0;
  testing::ModelEnds ends;
  if (modelled_) ends = grad_model_.Call(number, call, cancelled_);
  Run<Tensor>(
      grad_model_, std::move(ends), [&] { return runtime_->UnbatchGrad(call); },
      [&](Completion<Tensor> done) { runtime_->UnbatchGradAsync(call, std::move(done)); });
}

void Script::CallUnbatch() {
  Made& made = Make();
  const int number = static_cast<int>(made_.size()) - 1;
  UnbatchOperands& operands = made.unbatch.emplace(UnbatchOperands{in_.Below(kKeys), {}, {}, {}, {}});
  operands.waits = made.waiting;
  std::vector<int64_t> index;
  int64_t total = 0;
  if (in_.Below(2) == 1) {
    if (!in_.OneIn(8)) operands.keys.push_back(operands.id);
    for (int64_t more = in_.Below(4); more > 0; --more) operands.keys.push_back(in_.Below(kKeys));
    for (const int64_t key : operands.keys) {
      operands.rows.push_back(in_.Below(4));
      index.insert(index.end(), {key, 100, 100 + operands.rows.back()});
      total += operands.rows.back();
    }
    total = in_.OneIn(16) ? in_.Below(8) : total + static_cast<int64_t>(operands.keys.size());
  }
  operands.index = TensorOf(index, Shape{static_cast<int64_t>(operands.keys.size()), 3});
  std::vector<int32_t> values(static_cast<size_t>(total));
  std::iota(values.begin(), values.end(), 100 * number);
  operands.batch = TensorOf(values, Shape{total, 1});
  if (in_.OneIn(16)) operands.batch = TensorOf(std::vector<float>(values.begin(), values.end()), Shape{total, 1});
  UnbatchCall call = operands.call();
  if (in_.OneIn(16)) {  // a fault that the model does not define
    modelled_ = false;
    call.batch_index = Operand(in_, TensorOf(in_.Values<int64_t>(6), Shape{2, 3})).view;
    static constexpr int64_t kHostile[] = {1, INT64_MIN, INT64_MAX, 2, 0, 1};
    call.batch_index.data = kHostile;
  }
  testing::UnbatchEnds ends;
  if (modelled_) ends = unbatch_model_.Call(number, operands, cancelled_);
  Run<Tensor>(
      unbatch_model_, std::move(ends), [&] { return runtime_->Unbatch(call); },
      [&](Completion<Tensor> done) { runtime_->UnbatchAsync(call, std::move(done)); });
}

void Script::CallBatch() {
  Made& made = Make();
  const int number = static_cast<int>(made_.size()) - 1;
  BatchOperands& operands = made.batch.emplace(BatchOperands{{}, in_.Below(4) == 1 ? "other" : "", made.waiting});
  const int64_t rows = in_.OneIn(32) ? in_.Below(9) : 1 + in_.Below(3);
  const int64_t tensors = 1 + in_.Below(2);
  for (int64_t t = 0; t < tensors; ++t) {
    const int64_t columns = in_.OneIn(32) ? 0 : 1 + t;
    const DType dtype = in_.OneIn(16) ? in_.DTypeOf(NumberTypes{}) : DType::kFloat32;
    operands.tensors.push_back(AnyTensor(in_, dtype, Shape{rows, columns}, rows * columns));
    modelled_ = modelled_ && Contains(NumberTypes{}, dtype);
  }
  BatchCall call = operands.call();
  switch (in_.Below(64)) {
    default:
      break;
    case 1:
      call.max_batch_size = in_.Below(8) - 2;
      modelled_ = false;
      break;
    case 2:
      call.allowed_batch_sizes = {in_.Below(8), in_.Below(8)};
      modelled_ = false;
      break;
    case 3:
      call.batch_timeout_micros = in_.Below(200) - 1;
      call.resource.name = "due";
      modelled_ = false;
      no_time_ = true;  // the batch is due soon, so the call can be awaited
      break;
    case 4:
      call.in_tensors[0].view.shape = in_.Below(2) == 0 ? Shape{} : Shape{-1, int64_t{1} << 62};
      modelled_ = false;
  }
  testing::BatchEnds ends;
  if (modelled_) ends = batch_model_.Call(number, operands, cancelled_);
  Run<BatchOutput>(
      batch_model_, std::move(ends), [&] { return runtime_->Batch(call); },
      [&](Completion<BatchOutput> done) { runtime_->BatchAsync(call, std::move(done)); });
}

void Script::Cancel() {
  if (made_.empty()) return;
  const auto which = static_cast<size_t>(in_.Byte()) % made_.size();
  const Made& made = made_[which];
  if (!made.waiting.cancellation) return;
  made.waiting.cancellation->Cancel();
  if (!modelled_) return;
  const int number = static_cast<int>(which);
  if (made.grad) ExpectEnds(grad_model_.EndWait(number, Code::kCancelled));
  if (made.unbatch) ExpectEnds(unbatch_model_.EndWait(number, Code::kCancelled));
  if (made.batch) ExpectEnds(batch_model_.EndWait(number, Code::kCancelled));
}

void Script::Close() {
  switch (in_.Below(4)) {
    case 0:
      static_cast<void>(runtime_->Close(ResourceKind::kUnbatchGrad, {"", "r"}));
      return modelled_ ? ExpectEnds(grad_model_.Close()) : void();
    case 1:
      static_cast<void>(runtime_->Close(ResourceKind::kUnbatch, {"", "u"}));
      return modelled_ ? ExpectEnds(unbatch_model_.Close()) : void();
    case 2:
      static_cast<void>(runtime_->Close(ResourceKind::kBatch, {"", "b"}));
      return modelled_ ? ExpectEnds(batch_model_.Close()) : void();
    default:
      modelled_ = false;
      runtime_->CloseAll();
  }
}

void Script::ChangeLimits() {
  modelled_ = false;
  const ResourceLimits limits{.max_pieces = in_.Below(4),
                              .max_bytes = in_.Below(64),
                              .max_waiters = in_.Below(4),
                              .max_piece_age = WaitTime(in_.Below(300))};
  static_cast<void>(runtime_->SetLimits(ResourceKind::kUnbatchGrad, {"", "r"}, limits));
  static_cast<void>(runtime_->SetLimits(ResourceKind::kUnbatch, {"", "u"}, limits));
  static_cast<void>(runtime_->SetLimits(ResourceKind::kBatch, {"", "b"}, limits));
}

}  // namespace
}  // namespace raggrad::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  raggrad::fuzz::Script(raggrad::fuzz::FuzzInput(data, size)).Play();
  return 0;
}
