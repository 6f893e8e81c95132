// The adapter between XLA and raggrad. It answers five questions for one call of a handler: how a buffer becomes a
// view, where outputs and scratch come from, which stream is used, which pool of threads, and how a Status becomes an
// error of XLA.
//
//   Status Pool(Call& call) {
//     return call.Done(SparseSegment(..., call.View(0), ..., call.context()));
//   }
//
// It uses only XLA's foreign function interface, at the version of jaxlib 0.7, so one binary serves every jaxlib from
// there on.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "executor.h"
#include "raggrad/raggrad.h"
#include "xla_ffi.h"

namespace raggrad::jax_door {

// The operands of a call, as XLA hands them over.
struct Operands {
  ffi::RemainingArgs arguments;
  ffi::RemainingRets results;
  ffi::Dictionary attributes;
};

// A word of the engine's errors, and the user's word for the same thing.
struct Renamed {
  std::string_view engine;
  std::string_view user;
};

// Scratch in host memory. XLA has no allocator of it, and fresh pages would cost more than most operators.
Allocator& HostScratch() noexcept;

// Scratch in device memory from XLA's allocator, which takes it back when the call has ended and uses it again in the
// order of the stream.
class XlaScratch final : public Allocator {
 public:
  explicit XlaScratch(ffi::ScratchAllocator& allocator) noexcept : allocator_(allocator) {}
  void* Allocate(size_t bytes) noexcept override;
  void Deallocate(void*, size_t) noexcept override {}

 private:
  ffi::ScratchAllocator& allocator_;
};

// Scratch in device memory that lies in the last result of a call. A CUDA graph may hold such a call: XLA gives the
// memory to nobody else while the graph may be replayed. Python states its size (python/raggrad/jax/_scratch.py).
class ScratchResult final : public Allocator {
 public:
  explicit ScratchResult(const ffi::RemainingRets& results);
  void* Allocate(size_t bytes) noexcept override;
  void Deallocate(void*, size_t) noexcept override {}

 private:
  std::span<char> left_;
};

// Outputs that lie in XLA's results, and scratch.
class CallMemory final : public Allocator {
 public:
  CallMemory(std::vector<ffi::AnyBuffer> results, Allocator& scratch) noexcept;

  void* Allocate(size_t bytes) noexcept override;
  void Deallocate(void* data, size_t bytes) noexcept override;
  void* AllocateOutput(const OutputSpec& spec) noexcept override;

  // Output i of the engine is XLA's result places[i]; a place of -1 is scratch.
  void SetPlaces(std::initializer_list<int> places) noexcept { places_ = places; }

 private:
  const std::vector<ffi::AnyBuffer> results_;
  std::vector<int> places_;  // empty: they are the same
  Allocator& scratch_;
};

// The first rows of an array.
TensorView FirstRows(TensorView array, int64_t rows);

class Call {
 public:
  // In host memory, on XLA's threads.
  Call(const Operands& operands, ffi::ThreadPool& threads);
  // In the memory of a GPU, queued on XLA's stream.
  Call(const Operands& operands, void* stream, int32_t device, Allocator& scratch);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Outputs of the engine lie in XLA's results.
  const Context& context() const noexcept { return context_; }
  // All outputs are scratch in host memory.
  Context scratch_context() const noexcept;
  void SetPlaces(std::initializer_list<int> places) noexcept { memory_.SetPlaces(places); }

  int num_arguments() const noexcept { return static_cast<int>(operands_.arguments.size()); }
  TensorView View(int argument) const;
  MutableTensorView Result(int result) const;
  // An argument or a result of pairs of int32, which are the halves of int64. Without jax_enable_x64 there is no int64.
  TensorView WideView(int argument) const;
  // A number in host memory.
  template <class T>
  T Number(int argument) const {
    return *View(argument).As<T>();
  }

  // A number of rows in host memory, which the user calls `name`; an error if it is not 0 to `room`.
  ::raggrad::Result<int64_t> Count(int argument, std::string_view name, int64_t room) const;

  std::string_view Text(std::string_view attribute) const { return Get<std::string_view>(attribute); }
  int64_t Integer(std::string_view attribute) const { return Get<int64_t>(attribute); }
  double Real(std::string_view attribute) const { return Get<double>(attribute); }
  std::span<const int64_t> Integers(std::string_view attribute) const;

  template <class T>
  static Status Done(const ::raggrad::Result<T>& output) noexcept {
    return output.status();
  }

  // The Status as an error of the function that the user called, in the user's words.
  ffi::Error Report(const Status& status, std::span<const Renamed> names) const;

 private:
  template <class T>
  T Get(std::string_view attribute) const {
    return operands_.attributes.get<T>(attribute).value();  // throws if Python did not write it
  }
  void ReadAccumulation();

  const Operands& operands_;
  const Device device_;
  XlaExecutor executor_;
  CallMemory memory_;
  Context context_;
};

}  // namespace raggrad::jax_door
