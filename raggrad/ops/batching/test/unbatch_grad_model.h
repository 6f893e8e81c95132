// The obvious serial code of UnbatchGrad: says how each call must end. The oracle of the tests.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "raggrad/ops/batching/batching.h"

namespace raggrad::testing {

// The end of a call.
struct ModelEnd {
  int call = 0;
  Code code = Code::kOk;
  std::string text = {};         // part of the error's message
  std::vector<int> joined = {};  // OK: the result has the pieces of these calls, in this order; none: no rows
};
using ModelEnds = std::vector<ModelEnd>;

class UnbatchGradModel {
 public:
  // The calls that end by this call, itself included; if it is not among them, it waits. `cancelled`: its token is
  // cancelled before.
  ModelEnds Call(int number, const UnbatchGradCall& call, bool cancelled = false) {
    deviation_.clear();
    deviates_later_ = false;
    ends_.clear();
    const Piece piece{number, call.grad.view};
    const ModelEnd own = Arrive(number, call, piece, cancelled);
    if (own.call >= 0) ends_.push_back(own);
    if (call.id.rank() != 0 || call.grad.view.rank() == 0) return ends_;  // never reaches the resource
    ++calls_;
    for (const ModelEnd& end : ends_) ++(end.code == Code::kOk ? succeeded_ : failed_);
    return ends_;
  }

  // Ends a wait by cancellation or deadline. Nothing happens if the call does not wait.
  ModelEnds EndWait(int number, Code why) {
    ends_.clear();
    for (const auto& [id, batch] : open_) {
      if (batch.call != number) continue;
      End(id, {.code = why});
      ++failed_;
      break;
    }
    return ends_;
  }

  ModelEnds Close() {
    ends_.clear();
    for (const auto& [id, batch] : open_) ends_.push_back({.call = batch.call, .code = Code::kCancelled});
    unclaimed_.clear();
    open_.clear();
    calls_ = succeeded_ = failed_ = 0;  // the next call makes another resource
    return ends_;
  }

  // Why the last call did not end as in TensorFlow; "" if it did. A later deviation concerns only the calls that
  // follow, because TensorFlow keeps something of a failed call.
  const std::string& deviation() const noexcept { return deviation_; }
  bool deviates_later() const noexcept { return deviates_later_; }

  int64_t calls() const noexcept { return calls_; }
  int64_t succeeded() const noexcept { return succeeded_; }
  int64_t failed() const noexcept { return failed_; }
  int64_t waiters() const noexcept { return static_cast<int64_t>(open_.size()); }
  int64_t pieces() const {
    size_t pieces = unclaimed_.size();
    for (const auto& [id, batch] : open_) pieces += batch.arrived.size();
    return static_cast<int64_t>(pieces);
  }
  int64_t bytes() const {  // of pieces that are not strings
    int64_t bytes = 0;
    const auto add = [&](const Piece& piece) {
      bytes += *piece.view.shape.NumElements() * static_cast<int64_t>(DTypeSize(piece.view.dtype));
    };
    for (const auto& [key, piece] : unclaimed_) add(piece);
    for (const auto& [id, batch] : open_) {
      for (const auto& [key, piece] : batch.arrived) add(piece);
    }
    return bytes;
  }

 private:
  struct Piece {
    int call;
    TensorView view;
  };
  struct Batch {
    int call;
    DType dtype;
    std::vector<int64_t> keys;
    std::map<int64_t, Piece> arrived = {};
  };

  static constexpr int kWaits = -1;

  // "" if pieces of this type can be joined at all.
  static std::string Unsupported(const Piece& piece) {
    if (Contains(JoinLists<NumberTypes, TypeList<bool, String>>{}, piece.view.dtype)) return "";
    return "Unsupported data type: " + std::to_string(static_cast<int>(piece.view.dtype));
  }

  // "" if the pieces fit together and have the type of the result.
  static std::string Misfit(const std::vector<Piece>& pieces, DType dtype) {
    const TensorView& first = pieces[0].view;
    int64_t rows = 0;
    for (const Piece& piece : pieces) {
      if (piece.view.rank() != first.rank()) return "Ranks of all input tensors should match: shape[";
      if (!std::ranges::equal(piece.view.shape.tail(), first.shape.tail())) {
        return "Dimensions of inputs should match: shape[";
      }
      if (piece.view.dtype != first.dtype) return "Types of inputs should match: type[";
      if (piece.view.dtype != dtype) return "Type mismatch: actual ";
      if (__builtin_add_overflow(rows, piece.view.dim(0), &rows)) return "add up to more than";
    }
    return "";
  }

  // The open batch that lists a key.
  Batch* Wants(int64_t key) {
    for (auto& [id, batch] : open_) {
      if (std::ranges::find(batch.keys, key) != batch.keys.end()) return &batch;
    }
    return nullptr;
  }
  int64_t IdOf(const Batch* wanted) const {
    return std::ranges::find_if(open_, [&](const auto& entry) { return &entry.second == wanted; })->first;
  }

  void End(int64_t id, ModelEnd end) {
    end.call = open_.at(id).call;
    ends_.push_back(std::move(end));
    open_.erase(id);
  }

  static ModelEnd Error(int number, std::string text, Code code = Code::kInvalidArgument) {
    return {number, code, std::move(text)};
  }

  ModelEnd Arrive(int number, const UnbatchGradCall& call, const Piece& piece, bool cancelled) {
    if (call.id.rank() != 0) return Error(number, "Expected `id` to be scalar. Received ");
    if (piece.view.rank() == 0) {
      deviation_ = "a piece without rows is refused";
      return Error(number, "grad: expected at least rank 1");
    }
    const int64_t id = *call.id.As<int64_t>();
    Batch* const waiting = Wants(id);
    if (unclaimed_.contains(id) || (waiting != nullptr && waiting->arrived.contains(id))) {
      return Error(number, "Two runs with the same batch key.");
    }
    if (call.original_input.shape.NumElements() == 0) return Bring(number, id, piece, waiting);
    return ArriveOwner(number, id, call, piece, waiting, cancelled);
  }

  ModelEnd ArriveOwner(int number, int64_t id, const UnbatchGradCall& call, const Piece& piece, Batch* waiting,
                       bool cancelled) {
    const TensorView& index = call.batch_index;
    const int64_t elements = *index.shape.NumElements();
    deviates_later_ = true;  // unless it succeeds or fails by its pieces
    if (elements == 0) return Error(number, "batch_index is empty while the tensor isn't.");
    if (index.rank() == 0 || elements != 3 * index.dim(0)) return Error(number, "batch_index should contain ");
    std::vector<int64_t> keys;
    for (int64_t i = 0; i < index.dim(0); ++i) keys.push_back(index.As<int64_t>()[3 * i]);
    const bool lists_itself = std::ranges::find(keys, id) != keys.end();
    const bool repeats = std::set(keys.begin(), keys.end()).size() != keys.size();
    const auto missing = std::ranges::count_if(
        keys, [&](int64_t key) { return key != id && !unclaimed_.contains(key) && Wants(key) == nullptr; });
    const auto taken = std::ranges::find_if(keys, [&](int64_t key) { return key != id && Wants(key) != nullptr; });

    if (missing == 0 && taken == keys.end()) {
      if (repeats) return Error(number, "bad bookkeeping of available tensors.", Code::kInternal);
      deviates_later_ = false;
      return Collect(number, id, keys, piece, waiting);
    }
    if (open_.contains(id)) return Error(number, "Batch key with valid batch used twice.");
    if (taken != keys.end()) {
      if (Wants(*taken)->arrived.contains(*taken)) deviation_ = "a piece is reserved for the batch that waits for it";
      return Error(number, "Missing tensor wanted by more than one batch.");
    }
    if (repeats) {
      deviation_ = "an index with a repeated key is refused";
      return Error(number, "is listed more than once");
    }
    if (lists_itself && waiting != nullptr) {
      deviation_ = "the piece goes to the batch that waits for it, so its own batch cannot be";
      Bring(number, id, piece, waiting);
      return Error(number, "Missing tensor wanted by more than one batch.");
    }
    return Wait(number, id, {number, piece.view.dtype, keys}, piece, waiting, cancelled);
  }

  ModelEnd Collect(int number, int64_t id, const std::vector<int64_t>& keys, const Piece& piece, Batch* waiting) {
    std::vector<Piece> pieces;
    for (const int64_t key : keys) {
      pieces.push_back(key == id ? piece : unclaimed_.at(key));
      if (key != id) unclaimed_.erase(key);
    }
    if (std::ranges::find(keys, id) == keys.end()) {
      if (waiting != nullptr) deviation_ = "no wake-up is lost";
      Bring(number, id, piece, waiting);
    }
    if (const std::string text = Unsupported(pieces[0]); !text.empty()) return Error(number, text);
    if (const std::string text = Misfit(pieces, piece.view.dtype); !text.empty()) return Error(number, text);
    ModelEnd end{.call = number};
    for (const Piece& joined : pieces) end.joined.push_back(joined.call);
    return end;
  }

  ModelEnd Wait(int number, int64_t id, Batch batch, const Piece& piece, Batch* waiting, bool cancelled) {
    std::vector<Piece> present;
    for (const int64_t key : batch.keys) {
      if (key == id) {
        batch.arrived.emplace(key, piece);
      } else if (unclaimed_.contains(key)) {
        batch.arrived.emplace(key, unclaimed_.at(key));
      } else {
        continue;
      }
      present.push_back(batch.arrived.at(key));
    }
    if (const std::string text = present.empty() ? "" : Misfit(present, batch.dtype); !text.empty()) {
      deviation_ = "pieces that do not fit are found out before the last one comes";
      return Error(number, text);
    }
    if (cancelled) return Error(number, "cancelled", Code::kCancelled);
    deviates_later_ = false;
    for (const auto& [key, arrived] : batch.arrived) unclaimed_.erase(key);
    const bool lists_itself = batch.arrived.contains(id);
    open_.emplace(id, std::move(batch));
    if (!lists_itself) Bring(number, id, piece, waiting);
    return {.call = kWaits};
  }

  // Gives the piece to the batch that waits for it, or stores it as unclaimed.
  ModelEnd Bring(int number, int64_t id, const Piece& piece, Batch* waiting) {
    if (waiting == nullptr) {
      unclaimed_.emplace(id, piece);
      return {.call = number};
    }
    std::vector<Piece> present;
    for (const auto& [key, arrived] : waiting->arrived) present.push_back(arrived);
    present.push_back(piece);
    const std::string unsupported = Unsupported(piece);
    const std::string text = unsupported.empty() ? Misfit(present, waiting->dtype) : unsupported;
    if (!text.empty()) {
      deviation_ = "a piece that does not fit ends the batch";
      End(IdOf(waiting), Error(number, text));
      return unsupported.empty() ? ModelEnd{.call = number} : Error(number, unsupported);
    }
    waiting->arrived.emplace(id, piece);
    if (waiting->arrived.size() == waiting->keys.size()) {
      ModelEnd end;
      for (const int64_t key : waiting->keys) end.joined.push_back(waiting->arrived.at(key).call);
      End(IdOf(waiting), std::move(end));
    }
    return {.call = number};
  }

  std::map<int64_t, Piece> unclaimed_;
  std::map<int64_t, Batch> open_;  // by owner id
  ModelEnds ends_;
  std::string deviation_;
  bool deviates_later_ = false;
  int64_t calls_ = 0, succeeded_ = 0, failed_ = 0;
};

}  // namespace raggrad::testing
