#include "adapter.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "raggrad/core/error_text.h"
#include "raggrad/core/first_use.h"
#include "raggrad/core/huge_pages.h"

namespace raggrad::jax_door {
namespace {

struct TypePair {
  ffi::DataType xla;
  DType dtype;
};
constexpr std::array<TypePair, 15> kTypes = {{{ffi::DataType::F32, DType::kFloat32},
                                              {ffi::DataType::S32, DType::kInt32},
                                              {ffi::DataType::BF16, DType::kBFloat16},
                                              {ffi::DataType::F16, DType::kHalf},
                                              {ffi::DataType::F64, DType::kFloat64},
                                              {ffi::DataType::S64, DType::kInt64},
                                              {ffi::DataType::PRED, DType::kBool},
                                              {ffi::DataType::S8, DType::kInt8},
                                              {ffi::DataType::S16, DType::kInt16},
                                              {ffi::DataType::U8, DType::kUInt8},
                                              {ffi::DataType::U16, DType::kUInt16},
                                              {ffi::DataType::U32, DType::kUInt32},
                                              {ffi::DataType::U64, DType::kUInt64},
                                              {ffi::DataType::C64, DType::kComplex64},
                                              {ffi::DataType::C128, DType::kComplex128}}};

// kInvalid for types that raggrad does not have; operators refuse it and name the argument.
DType DTypeOf(const ffi::AnyBuffer& buffer) noexcept {
  const auto* const found = std::ranges::find(kTypes, buffer.element_type(), &TypePair::xla);
  return found == kTypes.end() ? DType::kInvalid : found->dtype;
}

Shape ShapeOf(const ffi::AnyBuffer& buffer) {
  return Shape(std::span<const int64_t>(buffer.dimensions().begin(), buffer.dimensions().size()));
}

std::vector<ffi::AnyBuffer> ResultsOf(const Operands& operands) {
  std::vector<ffi::AnyBuffer> results;
  for (size_t i = 0; i < operands.results.size(); ++i) {
    results.push_back(*operands.results.get<ffi::AnyBuffer>(i).value());
  }
  return results;
}

bool IsWordChar(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Replaces whole words, one after the other.
void Rename(std::string& text, std::span<const Renamed> names) {
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && IsWordChar(text[end])) ++end;
    const std::string_view word = std::string_view(text).substr(begin, end - begin);
    const auto name = std::ranges::find(names, word, &Renamed::engine);
    if (name != names.end()) {
      text.replace(begin, word.size(), name->user);
      end = begin + name->user.size();
    }
    begin = std::max(end, begin + 1);
  }
}

}  // namespace

TensorView FirstRows(TensorView array, int64_t rows) {
  array.shape = Shape::WithDim0(rows, array.shape.tail());
  return array;
}

Allocator& HostScratch() noexcept {
  static constinit FirstUse<PoolAllocator> pool;
  return pool.Get([] { return PoolAllocator(); });
}

void* XlaScratch::Allocate(size_t bytes) noexcept {
  try {
    // XLA refuses to promise more than 16 bytes, though its blocks of device memory are aligned to 256.
    return allocator_.Allocate(bytes).value_or(nullptr);
  } catch (...) {  // no memory for XLA's list of blocks
    return nullptr;
  }
}

ScratchResult::ScratchResult(const ffi::RemainingRets& results) {
  const ffi::AnyBuffer last = *results.get<ffi::AnyBuffer>(results.size() - 1).value();
  left_ = {static_cast<char*>(last.untyped_data()), last.size_bytes()};
}

void* ScratchResult::Allocate(size_t bytes) noexcept {
  void* block = left_.data();
  size_t room = left_.size();
  if (std::align(kAlignment, bytes, block, room) == nullptr) return nullptr;
  left_ = left_.last(room - bytes);
  return block;
}

CallMemory::CallMemory(std::vector<ffi::AnyBuffer> results, Allocator& scratch) noexcept
    : results_(std::move(results)), scratch_(scratch) {}

void* CallMemory::Allocate(size_t bytes) noexcept { return scratch_.Allocate(bytes); }

void CallMemory::Deallocate(void* data, size_t bytes) noexcept {
  const bool is_result = std::ranges::find(results_, data, &ffi::AnyBuffer::untyped_data) != results_.end();
  if (!is_result) scratch_.Deallocate(data, bytes);
}

void* CallMemory::AllocateOutput(const OutputSpec& spec) noexcept {
  const auto index = static_cast<size_t>(spec.index);
  const int place = index < places_.size() ? places_[index] : spec.index;
  if (place < 0) return spec.device.is_cpu() ? HostScratch().Allocate(spec.bytes) : Allocate(spec.bytes);
  const ffi::AnyBuffer& result = results_[static_cast<size_t>(place)];
  if (result.size_bytes() != spec.bytes) return nullptr;  // never: Python states the sizes that the engine has
  if (spec.device.is_cpu()) AskForHugePages(result.untyped_data(), spec.bytes);
  return result.untyped_data();
}

Call::Call(const Operands& operands, ffi::ThreadPool& threads)
    : operands_(operands), device_(Device::Cpu()), executor_(&threads), memory_(ResultsOf(operands), HostScratch()) {
  context_.allocator = &memory_;
  context_.executor = &executor_;
  ReadAccumulation();
}

Call::Call(const Operands& operands, void* stream, int32_t device, Allocator& scratch)
    : operands_(operands), device_(Device::Cuda(device)), executor_(nullptr), memory_(ResultsOf(operands), scratch) {
  context_.allocator = &HostScratch();
  context_.device_allocator = &memory_;
  context_.executor = &executor_;
  context_.stream = stream;
  ReadAccumulation();
}

Context Call::scratch_context() const noexcept {
  Context scratch = context_;
  scratch.allocator = &HostScratch();
  return scratch;
}

TensorView Call::View(int argument) const {
  const ffi::AnyBuffer buffer = operands_.arguments.get<ffi::AnyBuffer>(static_cast<size_t>(argument)).value();
  return {buffer.untyped_data(), DTypeOf(buffer), ShapeOf(buffer), device_};
}

MutableTensorView Call::Result(int result) const {
  const ffi::AnyBuffer buffer = *operands_.results.get<ffi::AnyBuffer>(static_cast<size_t>(result)).value();
  return {buffer.untyped_data(), DTypeOf(buffer), ShapeOf(buffer), device_};
}

TensorView Call::WideView(int argument) const {
  TensorView view = View(argument);
  view.dtype = DType::kInt64;
  view.shape = Shape(view.shape.dims().first(view.shape.dims().size() - 1));
  return view;
}

::raggrad::Result<int64_t> Call::Count(int argument, std::string_view name, int64_t room) const {
  const int64_t count = Number<int32_t>(argument);
  if (count >= 0 && count <= room) return count;
  return MakeError(Code::kInvalidArgument, "[", name, ": expected 0 to ", room, ", the rows there is room for, got ",
                   count, "]");
}

std::span<const int64_t> Call::Integers(std::string_view attribute) const {
  const auto numbers = Get<ffi::Span<const int64_t>>(attribute);
  return {numbers.begin(), numbers.size()};
}

void Call::ReadAccumulation() {
  const std::string_view name = Text("accumulation");
  if (name.empty()) return;
  const ::raggrad::Result<Accumulation> mode = AccumulationByName(name);  // Python has checked it
  if (mode.ok()) context_.accumulation = *mode;
}

ffi::Error Call::Report(const Status& status, std::span<const Renamed> names) const {
  if (status.ok()) return ffi::Error::Success();
  std::string text(TextWithoutOperator(status.message()));
  Rename(text, names);
  return {static_cast<ffi::ErrorCode>(status.code()),
          std::string("raggrad.jax.").append(Text("function")).append(": ").append(text)};
}

}  // namespace raggrad::jax_door
