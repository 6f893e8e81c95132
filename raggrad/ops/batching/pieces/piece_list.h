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
  // Makes room for `count` pieces that fit `first`, which must outlive the list; padding is one more. Memory comes from
  // the heap: the caller's allocator is asked for results only. A single piece needs none.
  static Result<PieceList> Make(const TensorView& first, int64_t count) noexcept {
    std::unique_ptr<Piece[]> many(count > 1 ? new (std::nothrow) Piece[static_cast<size_t>(count)] : nullptr);
    if (count > 1 && many == nullptr) return Status(Code::kResourceExhausted, "no memory for the list of pieces");
    return PieceList(first, std::move(many));
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

  // Appends copies of the first row of the first piece. Nothing can be added after them.
  void AddPadding(int64_t rows) noexcept {
    rows_ += rows;
    repeated_ = Shape::Product(first_->shape.tail()).value_or(0);
    if (repeated_ > 0) Append(first_->data, 0);  // the values behind the last piece end with the tensor
  }

  std::span<const Piece> pieces() const noexcept { return {many_ ? many_.get() : &one_, static_cast<size_t>(size_)}; }
  int64_t repeated() const noexcept { return repeated_; }  // values of the last piece if it is padding, else 0
  DType dtype() const noexcept { return first_->dtype; }
  Shape shape() const noexcept { return Shape::WithDim0(rows_, first_->shape.tail()); }

 private:
  PieceList(const TensorView& first, std::unique_ptr<Piece[]> many) noexcept : first_(&first), many_(std::move(many)) {}

  void Append(const void* data, int64_t values) noexcept {
    (many_ ? many_.get() : &one_)[size_++] = {data, values_};
    __builtin_add_overflow(values_, values, &values_);  // a shape with that many is refused before pieces are read
  }

  const TensorView* first_;
  std::unique_ptr<Piece[]> many_;  // null: there is only one_
  Piece one_{};
  int64_t size_ = 0;
  int64_t values_ = 0;
  int64_t rows_ = 0;
  int64_t repeated_ = 0;
};

}  // namespace raggrad::batching
