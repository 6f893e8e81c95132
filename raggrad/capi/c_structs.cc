#include "raggrad/capi/c_structs.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "raggrad/core/error_text.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::capi {
namespace {

static_assert(RG_MAX_RANK == Shape::kMaxRank && RG_ALIGNMENT == Allocator::kAlignment);
static_assert(sizeof(rg_string) == sizeof(String) && offsetof(rg_string, size) == offsetof(String, size));
static_assert(RG_UNAVAILABLE == static_cast<int>(Code::kUnavailable) && RG_CUDA == static_cast<int>(DeviceKind::kCuda));
static_assert(RG_UINT64 == static_cast<int>(DType::kUInt64) && RG_SQRTN == static_cast<int>(SegmentCombiner::kSqrtN));

}  // namespace

void AppendText(std::string& text, const Place& place) {
  const auto append = [&](std::string_view list, int64_t position) {
    text.append(list).push_back('[');
    raggrad::AppendText(text, position);
    text.push_back(']');
  };
  text.append(place.argument);
  if (place.element >= 0) {
    append(".elements", place.element);
    if (place.item != Place::kWhole) text.append(place.item < 0 ? ".values" : ".nested_splits");
  }
  if (place.item >= 0) append("", place.item);
}

Status CheckStructSize(std::string_view function, const Place& place, const void* given, size_t first) noexcept {
  if (given == nullptr) return InvalidArgument(function, "an argument is NULL [", place, "]");
  size_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  if (size >= first && size <= kLargestStruct) return {};
  return InvalidArgument(function, "a struct does not say its size [", place, ".struct_size: expected ", first, " to ",
                         kLargestStruct, " bytes, got ", size, "]");
}

Status ReadStruct(std::string_view function, const Place& place, const void* given, void* known, size_t known_size,
                  size_t first) noexcept {
  if (Status s = CheckStructSize(function, place, given, first); !s.ok()) return s;
  const char* const bytes = static_cast<const char*>(given);
  size_t size = 0;
  std::memcpy(&size, bytes, sizeof(size));
  std::memcpy(known, bytes, std::min(size, known_size));
  for (size_t i = known_size; i < size; ++i) {
    if (bytes[i] != 0) {
      return InvalidArgument(function, "a struct has a member that this version of the library does not know [", place,
                             ", byte ", i, ": expected 0, got ", static_cast<int>(bytes[i]), "]");
    }
  }
  return {};
}

Result<Device> ReadDevice(std::string_view function, const Place& place, int32_t kind, int32_t number) noexcept {
  if (kind != RG_CPU && kind != RG_CUDA) {
    return InvalidArgument(function, "no such device [", place,
                           ".device_kind: expected RG_CPU (1) or RG_CUDA (2), got ", kind, "]");
  }
  if (number < 0 || (kind == RG_CPU && number != 0)) {
    return InvalidArgument(function, "no such device [", place, ".device_number: expected ",
                           kind == RG_CPU ? "0 for RG_CPU" : "at least 0", ", got ", number, "]");
  }
  return Device{static_cast<DeviceKind>(kind), number};
}

Result<Shape> ReadShape(std::string_view function, const Place& place, int32_t rank, const int64_t* dims) noexcept {
  if (rank < 0 || rank > RG_MAX_RANK) {
    return InvalidArgument(function, "no such rank [", place, ".rank: expected 0 to ", RG_MAX_RANK, ", got ", rank,
                           "]");
  }
  if (rank > 0 && dims == nullptr) {
    return InvalidArgument(function, "no shape [", place, ".shape: expected ", rank, " dimensions, got NULL]");
  }
  for (int32_t i = 0; i < rank; ++i) {
    if (dims[i] < 0) {
      return InvalidArgument(function, "a dimension is negative [", place, ".shape[", i, "]: expected at least 0, got ",
                             dims[i], "]");
    }
  }
  Shape shape(std::span(dims, static_cast<size_t>(rank)));
  if (!shape.valid()) return MakeError(Code::kResourceExhausted, function, ": no memory for a shape [", place, "]");
  return shape;
}

Result<TensorView> ReadTensor(std::string_view function, const Place& place, const rg_tensor* given) noexcept {
  rg_tensor tensor{};
  if (Status s = ReadStruct(function, place, given, tensor); !s.ok()) return s;
  if (DTypeSize(static_cast<DType>(tensor.dtype)) == 0) {
    return InvalidArgument(function, "no such dtype [", place, ".dtype: expected the number of a dtype, got ",
                           tensor.dtype, "]");
  }
  const Result<Device> device = ReadDevice(function, place, tensor.device_kind, tensor.device_number);
  if (!device.ok()) return device.status();
  Result<Shape> shape = ReadShape(function, place, tensor.rank, tensor.shape);
  if (!shape.ok()) return shape.status();
  if (tensor.data == nullptr && std::ranges::find(shape->dims(), 0) == shape->dims().end()) {
    return InvalidArgument(function, "no data [", place, ".data: expected elements of shape ", *shape, ", got NULL]");
  }
  return TensorView{tensor.data, static_cast<DType>(tensor.dtype), *std::move(shape), *device};
}

void Store(Tensor& tensor, rg_output* output) noexcept {
  const std::span<const int64_t> dims = tensor.shape().dims();
  const Device device = tensor.view().device;
  output->dtype = static_cast<int32_t>(tensor.dtype());
  output->device_kind = static_cast<int32_t>(device.kind);
  output->device_number = device.number;
  output->rank = static_cast<int32_t>(dims.size());
  std::ranges::copy(dims, output->shape);
  output->bytes = tensor.bytes();
  output->data = tensor.release();
}

Result<int64_t> ElementViews::Count(std::string_view function, std::string_view argument,
                                    const rg_variant_array& array) noexcept {
  if (array.num_elements < 0 || (array.num_elements > 0 && array.elements == nullptr)) {
    return InvalidArgument(function, "no elements [", argument, ": expected num_elements of them, got num_elements ",
                           array.num_elements, array.elements ? "" : " and NULL", "]");
  }
  int64_t num_splits = 0;
  for (int64_t i = 0; i < array.num_elements; ++i) {
    if (array.elements[i] == nullptr) continue;
    rg_ragged element{};
    if (Status s = ReadStruct(function, {argument, i, Place::kWhole}, array.elements[i], element); !s.ok()) return s;
    if (!with_splits_) continue;
    if (element.num_splits < 0 || (element.num_splits > 0 && element.nested_splits == nullptr)) {
      return InvalidArgument(function, "no splits [", argument, ".elements[", i, "]: expected num_splits of them, got ",
                             "num_splits ", element.num_splits, element.nested_splits ? "" : " and NULL", "]");
    }
    num_splits += element.num_splits;
  }
  return num_splits;
}

Status ElementViews::Read(std::string_view function, std::string_view argument, const rg_variant_array& array,
                          const Context& ctx) noexcept {
  const Result<int64_t> num_splits = Count(function, argument, array);
  if (!num_splits.ok()) return num_splits.status();
  auto views = List<std::optional<RaggedView>>::Make(ctx.allocator, array.num_elements);
  if (!views.ok()) return views.status();
  views_ = *std::move(views);
  Result<List<TensorView>> splits = List<TensorView>::Make(ctx.allocator, *num_splits);
  if (!splits.ok()) return splits.status();
  splits_ = *std::move(splits);

  TensorView* next = splits_.span().data();
  for (int64_t i = 0; i < array.num_elements; ++i) {
    if (array.elements[i] == nullptr) continue;
    rg_ragged element{};
    if (Status s = ReadStruct(function, {argument, i, Place::kWhole}, array.elements[i], element); !s.ok()) return s;
    const Result<TensorView> values = ReadTensor(function, {argument, i}, element.values);
    if (!values.ok()) return values.status();
    const int32_t levels = with_splits_ ? element.num_splits : 0;
    views_[i].emplace(RaggedView{{next, static_cast<size_t>(levels)}, *values});
    for (int32_t level = 0; level < levels; ++level, ++next) {
      const Result<TensorView> view = ReadTensor(function, {argument, i, level}, element.nested_splits[level]);
      if (!view.ok()) return view.status();
      *next = *view;
    }
  }
  return {};
}

}  // namespace raggrad::capi
