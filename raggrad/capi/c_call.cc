#include "raggrad/capi/c_call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "raggrad/core/error_text.h"

namespace raggrad::capi {
namespace {

static_assert(sizeof(rg_mutable_tensor) == sizeof(rg_tensor) &&
              offsetof(rg_mutable_tensor, data) == offsetof(rg_tensor, data) &&
              offsetof(rg_mutable_tensor, shape) == offsetof(rg_tensor, shape));

constexpr std::string_view kOutputNames[CCall::kMaxOutputs] = {"output 0", "output 1", "output 2", "output 3",
                                                               "output 4"};

}  // namespace

void WriteMessage(const rg_error& error, std::string_view text) noexcept {
  if (error.message == nullptr || error.capacity == 0) return;
  size_t size = std::min(text.size(), error.capacity - 1);
  while (size > 0 && size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  std::memcpy(error.message, text.data(), size);
  error.message[size] = '\0';
}

CCall::CCall(std::string_view function, const rg_context* context, rg_error* error,
             std::initializer_list<rg_output*> outputs) noexcept
    : function_(function) {
  if (error != nullptr) error_ = ReadStruct("error", error);
  size_t count = 0;
  for (rg_output* const output : outputs) {
    const Place place{kOutputNames[count]};
    if (Claim(place, output) && std::ranges::find(outputs_, output) != std::end(outputs_)) {
      Note(InvalidArgument(function_, "an output is given twice [", place, "]"));
    }
    outputs_[count++] = output;
  }
  Note(given_.Read(function_, context));
}

bool CCall::Claim(const Place& place, rg_output* output) noexcept {
  const Status status = output == nullptr ? InvalidArgument(function_, "an output is NULL [", place, "]")
                                          : WriteStruct(function_, place, output, rg_output{});
  Note(status);
  return status.ok();
}

void CCall::ReadOutputs(std::string_view argument, rg_output* const* outputs, int64_t count) noexcept {
  if (count <= 0 || !Given(argument, outputs)) return;
  bool good = true;
  for (int64_t i = 0; i < count; ++i) good &= Claim({.argument = argument, .item = i}, outputs[i]);
  if (!good) return;
  // An output that was met before has a mark, a pointer to itself, so that a long list takes linear time.
  for (int64_t i = 0; i < count; ++i) {
    if (outputs[i]->data != nullptr || std::ranges::find(outputs_, outputs[i]) != std::end(outputs_)) {
      Note(InvalidArgument(function_, "an output is given twice [", Place{.argument = argument, .item = i}, "]"));
    }
    outputs[i]->data = outputs[i];
  }
  for (int64_t i = 0; i < count; ++i) outputs[i]->data = nullptr;
}

TensorView CCall::Read(std::string_view argument, const rg_tensor* tensor) noexcept {
  Result<TensorView> view = ReadTensor(function_, {argument}, tensor);
  Note(view.status());
  return view.ok() ? *std::move(view) : TensorView{};
}

MutableTensorView CCall::Read(std::string_view argument, const rg_mutable_tensor* tensor) noexcept {
  const TensorView view = Read(argument, reinterpret_cast<const rg_tensor*>(tensor));
  return {const_cast<void*>(view.data), view.dtype, view.shape, view.device};
}

std::span<const TensorView> CCall::Read(std::string_view argument, const rg_tensor* const* tensors, int64_t count,
                                        List<TensorView>& storage) noexcept {
  if (count < 0) Note(InvalidArgument(function_, "no such number of tensors [", argument, ": got ", count, "]"));
  if (count > 0 && !Given(argument, tensors)) return {};
  if (!status_.ok()) return {};
  Result<List<TensorView>> views =
      WithOp(function_, [&] { return List<TensorView>::Make(given_.context().allocator, count); });
  Note(views.status());
  if (!views.ok()) return {};
  storage = *std::move(views);
  for (int64_t i = 0; i < count; ++i) {
    const Result<TensorView> view = ReadTensor(function_, {.argument = argument, .item = i}, tensors[i]);
    Note(view.status());
    if (view.ok()) storage[i] = *view;
  }
  return storage.span();
}

VariantArrayView CCall::Read(std::string_view argument, const rg_variant_array* array, ElementViews& storage) noexcept {
  const rg_variant_array known = ReadStruct(argument, array);
  if (!status_.ok()) return {};
  const Result<Shape> shape = ReadShape(function_, {argument}, known.rank, known.shape);
  Note(shape.status());
  if (!shape.ok()) return {};
  Note(WithOp(function_, [&] { return storage.Read(function_, argument, known, given_.context()); }));
  return {*shape, storage.views()};
}

SegmentCombiner CCall::ReadCombiner(int32_t combiner) noexcept {
  if (combiner >= RG_SUM && combiner <= RG_SQRTN) return static_cast<SegmentCombiner>(combiner);
  Note(InvalidArgument(function_, "no such combiner [combiner: expected RG_SUM (0), RG_MEAN (1) or RG_SQRTN (2), got ",
                       combiner, "]"));
  return SegmentCombiner::kSum;
}

bool CCall::Given(std::string_view argument, const void* pointer) noexcept {
  if (pointer == nullptr) Note(InvalidArgument(function_, "an argument is NULL [", argument, "]"));
  return pointer != nullptr;
}

rg_status CCall::Report() noexcept {
  status_ = given_.Explain(function_, status_);
  WriteMessage(error_, status_.message());
  return static_cast<rg_status>(status_.code());
}

}  // namespace raggrad::capi
