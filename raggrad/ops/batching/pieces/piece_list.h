// PieceList: pieces and padding, described for a join along dimension 0. Internal to the family.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "raggrad/core/piece.h"
#include "raggrad/ops/batching/batching.h"

namespace raggrad::batching {

class PieceList {
 public:
  // Makes room for `count` pieces that fit `first`, which must outlive the list, and for rows of padding. Memory comes
  // from the heap: the caller's allocator is asked for results only. A single piece needs none.
  static Result<PieceList> Make(const TensorView& first, int64_t count, int64_t padding = 0) noexcept {
    const int64_t row_values = Shape::Product(first.shape.tail()).value_or(0);
    const int64_t room = row_values > 0 ? count + padding : count;
    std::unique_ptr<Piece[]> many(room > 1 ? new (std::nothrow) Piece[static_cast<size_t>(room)] : nullptr);
    if (room > 1 && many == nullptr) return Status(Code::kResourceExhausted, "no memory for the list of pieces");
    return PieceList(first, row_values, std::move(many));
  }

  static Result<PieceList> Of(std::span<const SharedView> pieces) noexcept {
    Result<PieceList> list = Make(pieces[0].view, std::ssize(pieces));
    if (!list.ok()) return list;
    for (const SharedView& piece : pieces) list->Add(piece.view);
    return list;
  }

  void Add(const TensorView& piece) noexcept {
    Append(piece.data, piece.shape.NumElements().value_or(0));
    rows_ += piece.dim(0);
  }

  // Appends copies of the first row of the first piece.
  void AddPadding(int64_t rows) noexcept {
    rows_ += rows;
    if (row_values_ == 0) return;
    for (int64_t i = 0; i < rows; ++i) Append(first_->data, row_values_);
  }

  std::span<const Piece> pieces() const noexcept { return {many_ ? many_.get() : &one_, static_cast<size_t>(size_)}; }
  DType dtype() const noexcept { return first_->dtype; }
  Shape shape() const noexcept { return Shape::WithDim0(rows_, first_->shape.tail()); }

 private:
  PieceList(const TensorView& first, int64_t row_values, std::unique_ptr<Piece[]> many) noexcept
      : first_(&first), row_values_(row_values), many_(std::move(many)) {}

  void Append(const void* data, int64_t values) noexcept {
    (many_ ? many_.get() : &one_)[size_++] = {data, values_};
    __builtin_add_overflow(values_, values, &values_);  // a shape with that many is refused before pieces are read
  }

  const TensorView* first_;
  int64_t row_values_;
  std::unique_ptr<Piece[]> many_;  // null: there is only one_
  Piece one_{};
  int64_t size_ = 0;
  int64_t values_ = 0;
  int64_t rows_ = 0;
};

}  // namespace raggrad::batching
