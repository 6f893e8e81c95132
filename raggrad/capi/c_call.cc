#include "raggrad/capi/c_call.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "raggrad/core/error_text.h"
#include "raggrad/core/isa.h"

namespace raggrad::capi {
namespace {

static_assert(RG_MAX_RANK == Shape::kMaxRank && RG_ALIGNMENT == Allocator::kAlignment);
static_assert(sizeof(rg_string) == sizeof(String) && offsetof(rg_string, size) == offsetof(String, size));
static_assert(RG_UNAVAILABLE == static_cast<int>(Code::kUnavailable) && RG_CUDA == static_cast<int>(DeviceKind::kCuda));
static_assert(RG_UINT64 == static_cast<int>(DType::kUInt64) && RG_SQRTN == static_cast<int>(SegmentCombiner::kSqrtN));

// The place of a fault in the arguments.
struct Place {
  std::string_view argument;
  int64_t element = -1;  // of a variant array
  int64_t item = -1;     // of a list, or of the element's splits
};
void AppendText(std::string& text, const Place& place) {
  const auto append = [&](std::string_view list, int64_t position) {
    text.append(list).push_back('[');
    raggrad::AppendText(text, position);
    text.push_back(']');
  };
  text.append(place.argument);
  if (place.element >= 0) {
    append(".elements", place.element);
    text.append(place.item < 0 ? ".values" : ".nested_splits");
  }
  if (place.item >= 0) append("", place.item);
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

Result<TensorView> ReadTensor(std::string_view function, const Place& place, const rg_tensor& tensor) noexcept {
  if (DTypeSize(static_cast<DType>(tensor.dtype)) == 0) {
    return InvalidArgument(function, "no such dtype [", place, ".dtype: expected the number of a dtype, got ",
                           tensor.dtype, "]");
  }
  if (tensor.device != RG_CPU && tensor.device != RG_CUDA) {
    return InvalidArgument(function, "no such device [", place, ".device: expected RG_CPU (1) or RG_CUDA (2), got ",
                           tensor.device, "]");
  }
  if (tensor.device == RG_CUDA) {
    return MakeError(Code::kUnimplemented, function, ": operands in device memory are for C++ only [", place,
                     ".device: expected RG_CPU (1), got RG_CUDA (2)]");
  }
  Result<Shape> shape = ReadShape(function, place, tensor.rank, tensor.shape);
  if (!shape.ok()) return shape.status();
  if (tensor.data == nullptr && std::ranges::find(shape->dims(), 0) == shape->dims().end()) {
    return InvalidArgument(function, "no data [", place, ".data: expected elements of shape ", *shape, ", got NULL]");
  }
  return TensorView{tensor.data, static_cast<DType>(tensor.dtype), *std::move(shape), Device::Cpu()};
}

Result<std::optional<Isa>> ReadIsa(std::string_view function, const char* name) noexcept {
  if (name == nullptr) return std::optional<Isa>();
  for (const Isa isa : AvailableIsas()) {
    if (IsaName(isa) == name) return std::optional(isa);
  }
  return InvalidArgument(function, "instruction set '", std::string_view(name), "' is not available [context.isa]");
}

// Truncates between characters, so that UTF-8 stays valid.
void WriteMessage(rg_error* error, std::string_view text) noexcept {
  if (error == nullptr || error->message == nullptr || error->capacity == 0) return;
  size_t size = std::min(text.size(), error->capacity - 1);
  while (size > 0 && size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  std::memcpy(error->message, text.data(), size);
  error->message[size] = '\0';
}

}  // namespace

void* CallbackAllocator::Ask(size_t bytes, const rg_output_spec* output) noexcept {
  void* const pointer = context_.allocate(context_.user, bytes, output);
  if (reinterpret_cast<uintptr_t>(pointer) % kAlignment == 0) return pointer;
  misaligned_ = true;
  Deallocate(pointer, bytes);
  return nullptr;
}

void* CallbackAllocator::Allocate(size_t bytes) noexcept { return Ask(bytes, nullptr); }

void* CallbackAllocator::AllocateOutput(const OutputSpec& spec) noexcept {
  const rg_output_spec output{spec.index, static_cast<int32_t>(spec.dtype), spec.shape.rank(), spec.shape.dims().data(),
                              spec.bytes};
  return Ask(spec.bytes, &output);
}

void CallbackAllocator::Deallocate(void* pointer, size_t bytes) noexcept {
  context_.deallocate(context_.user, pointer, bytes);
}

void CallbackExecutor::Run(int64_t tasks, TaskRef body) noexcept {
  const rg_task task = [](void* argument, int64_t index) { (*static_cast<const TaskRef*>(argument))(index); };
  context_.parallel_for(context_.user, tasks, task, &body);
}

Status ReadStruct(std::string_view function, std::string_view argument, const void* given, void* known,
                  size_t known_size) noexcept {
  constexpr size_t kLargestEver = 4096;  // a larger size is an uninitialised variable
  if (given == nullptr) return InvalidArgument(function, "an argument is NULL [", argument, "]");
  const char* const bytes = static_cast<const char*>(given);
  size_t size = 0;
  std::memcpy(&size, bytes, sizeof(size));
  if (size < sizeof(size) || size > kLargestEver) {
    return InvalidArgument(function, argument, " is not initialised [", argument,
                           ".struct_size: expected the size of the struct, got ", size, "]");
  }
  std::memcpy(known, bytes, std::min(size, known_size));
  for (size_t i = known_size; i < size; ++i) {
    if (bytes[i] != 0) {
      return InvalidArgument(function, argument, " has a field that this version of the library does not know [",
                             argument, ", byte ", i, ": expected 0, got ", static_cast<int>(bytes[i]), "]");
    }
  }
  return {};
}

Status ReadContext(std::string_view function, const rg_context* given, rg_context& context) noexcept {
  if (given == nullptr) return {};
  if (Status s = ReadStruct(function, "context", given, &context, sizeof(context)); !s.ok()) return s;
  if ((context.allocate == nullptr) != (context.deallocate == nullptr)) {
    return InvalidArgument(function, "context has one of allocate and deallocate [context: expected both or neither]");
  }
  const bool workers_ok = context.parallel_for ? context.num_workers >= 1 : (context.num_workers | 1) == 1;
  if (!workers_ok) {
    return InvalidArgument(function, "no such number of workers [context.num_workers: expected ",
                           context.parallel_for ? "at least 1 with parallel_for" : "0 or 1 without parallel_for",
                           ", got ", context.num_workers, "]");
  }
  if (context.accumulation < RG_ACCUMULATION_DEFAULT || context.accumulation > RG_ACCUMULATION_FAST) {
    return InvalidArgument(function, "no such accumulation [context.accumulation: expected 0, 1 or 2, got ",
                           context.accumulation, "]");
  }
  return {};
}

Status GivenContext::Read(std::string_view function, const rg_context* given) noexcept {
  if (Status s = ReadContext(function, given, given_); !s.ok()) return s;
  if (given_.allocate) context_.allocator = &allocator_;
  if (given_.parallel_for) {
    context_.executor = &executor_;
  } else if (given_.num_workers == 1) {
    context_.executor = &SerialExecutor();
  }
  if (given_.accumulation == RG_ACCUMULATION_SEQUENTIAL) context_.accumulation = Accumulation::kSequential;
  if (given_.accumulation == RG_ACCUMULATION_FAST) context_.accumulation = Accumulation::kFast;
  const Result<std::optional<Isa>> isa = ReadIsa(function, given_.isa);
  if (isa.ok()) context_.isa = *isa;
  return isa.status();
}

void Store(Tensor& tensor, rg_output* output) noexcept {
  const std::span<const int64_t> dims = tensor.shape().dims();
  output->dtype = static_cast<int32_t>(tensor.dtype());
  output->device = static_cast<int32_t>(tensor.view().device.kind);
  output->rank = static_cast<int32_t>(dims.size());
  std::ranges::copy(dims, output->shape);
  output->bytes = tensor.bytes();
  output->data = tensor.release();
}

Status ElementViews::Read(std::string_view function, std::string_view argument, const rg_variant_array& array,
                          const Context& ctx) noexcept {
  if (array.num_elements < 0 || (array.num_elements > 0 && array.elements == nullptr)) {
    return InvalidArgument(function, "no elements [", argument, ": expected num_elements of them, got num_elements ",
                           array.num_elements, array.elements ? "" : " and NULL", "]");
  }
  int64_t num_splits = 0;
  for (int64_t i = 0; with_splits_ && i < array.num_elements; ++i) {
    const rg_ragged& element = array.elements[i];
    if (element.missing != 0) continue;
    if (element.num_splits < 0 || (element.num_splits > 0 && element.nested_splits == nullptr)) {
      return InvalidArgument(function, "no splits [", argument, ".elements[", i, "]: expected num_splits of them, got ",
                             "num_splits ", element.num_splits, element.nested_splits ? "" : " and NULL", "]");
    }
    num_splits += element.num_splits;
  }
  auto views = List<std::optional<RaggedView>>::Make(ctx.allocator, array.num_elements);
  if (!views.ok()) return views.status();
  views_ = *std::move(views);
  Result<List<TensorView>> splits = List<TensorView>::Make(ctx.allocator, num_splits);
  if (!splits.ok()) return splits.status();
  splits_ = *std::move(splits);

  TensorView* next = splits_.span().data();
  for (int64_t i = 0; i < array.num_elements; ++i) {
    const rg_ragged& element = array.elements[i];
    if (element.missing != 0) continue;
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

CCall::CCall(std::string_view function, const rg_context* context, rg_error* error,
             std::initializer_list<rg_output*> outputs) noexcept
    : function_(function), error_(error) {
  ReadOutputs(outputs);
  Note(given_.Read(function_, context));
}

void CCall::ReadOutputs(std::initializer_list<rg_output*> outputs) noexcept {
  for (rg_output* const* output = outputs.begin(); output != outputs.end(); ++output) {
    const auto index = output - outputs.begin();
    if (*output == nullptr) {
      Note(InvalidArgument(function_, "an output is NULL [output ", index, "]"));
      continue;
    }
    **output = {};
    if (std::find(outputs.begin(), output, *output) != output) {
      Note(InvalidArgument(function_, "an output is given twice [output ", index, "]"));
    }
  }
}

void CCall::ReadOutputs(std::string_view argument, rg_output* outputs, int64_t count) noexcept {
  if (count <= 0 || !Given(argument, outputs)) return;
  for (int64_t i = 0; i < count; ++i) outputs[i] = {};
}

TensorView CCall::Read(std::string_view argument, const rg_tensor* tensor) noexcept {
  if (!Given(argument, tensor)) return {};
  const Result<TensorView> view = ReadTensor(function_, {argument}, *tensor);
  Note(view.status());
  return view.ok() ? *view : TensorView{};
}

std::span<const TensorView> CCall::Read(std::string_view argument, const rg_tensor* tensors, int64_t count,
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
  if (!Given(argument, array) || !status_.ok()) return {};
  const Result<Shape> shape = ReadShape(function_, {argument}, array->rank, array->shape);
  Note(shape.status());
  if (!shape.ok()) return {};
  Note(WithOp(function_, [&] { return storage.Read(function_, argument, *array, given_.context()); }));
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
  if (given_.misaligned()) {
    status_ = InvalidArgument(function_, "memory is not aligned [context.allocate: expected a multiple of ",
                              RG_ALIGNMENT, "]");
  }
  WriteMessage(error_, status_.message());
  return static_cast<rg_status>(status_.code());
}

}  // namespace raggrad::capi
