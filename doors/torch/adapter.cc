#include "adapter.h"

#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>
#include <vector>

#include "executor.h"
#include "raggrad/core/error_text.h"
#include "raggrad/core/first_use.h"
#include "raggrad/core/huge_pages.h"

namespace raggrad::torch_door {
namespace {

using ::torch::headeronly::ScalarType;

struct TypePair {
  ScalarType torch;
  DType dtype;
};
// Operators refuse those that they do not have, and name them.
constexpr std::array<TypePair, 19> kTypes = {{{ScalarType::Float, DType::kFloat32},
                                              {ScalarType::Long, DType::kInt64},
                                              {ScalarType::Int, DType::kInt32},
                                              {ScalarType::BFloat16, DType::kBFloat16},
                                              {ScalarType::Half, DType::kHalf},
                                              {ScalarType::Double, DType::kFloat64},
                                              {ScalarType::Byte, DType::kUInt8},
                                              {ScalarType::Char, DType::kInt8},
                                              {ScalarType::Short, DType::kInt16},
                                              {ScalarType::Bool, DType::kBool},
                                              {ScalarType::ComplexFloat, DType::kComplex64},
                                              {ScalarType::ComplexDouble, DType::kComplex128},
                                              {ScalarType::UInt16, DType::kUInt16},
                                              {ScalarType::UInt32, DType::kUInt32},
                                              {ScalarType::UInt64, DType::kUInt64},
                                              {ScalarType::Float8_e5m2, DType::kFloat8E5M2},
                                              {ScalarType::Float8_e4m3fn, DType::kFloat8E4M3FN},
                                              {ScalarType::Float8_e5m2fnuz, DType::kFloat8E5M2FNUZ},
                                              {ScalarType::Float8_e4m3fnuz, DType::kFloat8E4M3FNUZ}}};

DType DTypeOf(std::string_view op, const TorchTensor& tensor) {
  int32_t number = 0;  // scalar_type() would throw for some
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &number));
  const auto type = static_cast<ScalarType>(number);
  const auto* const found = std::ranges::find(kTypes, type, &TypePair::torch);
  if (found != kTypes.end()) return found->dtype;
  Throw(op, MakeError(Code::kInvalidArgument, "[dtype: expected one that raggrad has, got ",
                      ::torch::headeronly::toString(type), "]"));
}

ScalarType TorchTypeOf(DType dtype) noexcept {
  return std::ranges::find(kTypes, dtype, &TypePair::dtype)->torch;  // outputs have types of the list
}

Shape ShapeOf(const TorchTensor& tensor) {
  const auto sizes = tensor.sizes();
  return Shape(std::span<const int64_t>(sizes.data(), sizes.size()));
}

Device DeviceOf(const TorchTensor& tensor) {
  return tensor.is_cuda() ? Device::Cuda(tensor.get_device_index()) : Device::Cpu();
}

// The symbol exists only in torch builds with CUDA. It is looked up at run time, so that this library loads in others.
void* CurrentStream(int32_t device) {
  using Function = AOTITorchError (*)(int32_t, void**);
  static const auto current = []() -> Function {
    constexpr char kName[] = "aoti_torch_get_current_cuda_stream";
    void* symbol = dlsym(RTLD_DEFAULT, kName);
    if (symbol == nullptr) {
      if (void* const library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD)) symbol = dlsym(library, kName);
    }
    return reinterpret_cast<Function>(symbol);
  }();
  void* stream = nullptr;
  if (current == nullptr || current(device, &stream) != AOTI_TORCH_SUCCESS) {
    throw std::runtime_error("INTERNAL: raggrad: torch does not say which CUDA stream is current");
  }
  return stream;
}

// Scratch in host memory. Torch's allocator would give fresh pages to every call, whose first touch costs more than the
// operator; torch has no statistics of host memory that could miss it.
PoolAllocator& HostScratch() noexcept {
  static constinit FirstUse<PoolAllocator> pool;
  return pool.Get([] { return PoolAllocator(); });
}

}  // namespace

// On a GPU, small blocks of scratch lie in chunks, which are freed with this object: a tensor costs torch 5 us, and a
// call needs ten blocks.
class CallMemory final : public Allocator {
 public:
  explicit CallMemory(Device device) noexcept : device_(device) {}

  void* Allocate(size_t bytes) noexcept override {
    if (device_.is_cpu()) return HostScratch().Allocate(bytes);
    return bytes <= kMaxInChunk ? Carve(bytes) : Keep(ScalarType::Byte, Shape{static_cast<int64_t>(bytes)});
  }
  // Torch uses device memory again in the order of the stream.
  void Deallocate(void* data, size_t bytes) noexcept override {
    if (const auto block = Find(data); block != blocks_.end()) {
      blocks_.erase(block);
    } else if (device_.is_cpu()) {
      HostScratch().Deallocate(data, bytes);
    }
  }
  void* AllocateOutput(const OutputSpec& spec) noexcept override {
    void* const data = Keep(TorchTypeOf(spec.dtype), spec.shape);
    if (data != nullptr && device_.is_cpu()) AskForHugePages(data, spec.bytes);
    return data;
  }

  void Expect(size_t bytes) noexcept { next_chunk_ = std::max(next_chunk_, std::bit_ceil(std::min(bytes, kMaxChunk))); }

  TorchTensor Take(Tensor& output) {
    const auto block = Find(output.data());
    if (block == blocks_.end()) return Make(TorchTypeOf(output.dtype()), output.shape());  // it has no elements
    TorchTensor tensor = std::move(block->tensor);
    blocks_.erase(block);
    [[maybe_unused]] void* const taken = output.release();
    return tensor;
  }

 private:
  struct Block {
    void* data;
    TorchTensor tensor;
  };

  std::vector<Block>::iterator Find(const void* data) noexcept {
    return std::ranges::find_if(blocks_, [&](const Block& block) { return block.data == data && data != nullptr; });
  }

  TorchTensor Make(ScalarType type, const Shape& shape) const {
    std::vector<int64_t> strides(shape.dims().size(), 1);
    for (size_t i = strides.size(); i > 1; --i) {
      strides[i - 2] = strides[i - 1] * std::max<int64_t>(shape.dims()[i - 1], 1);
    }
    AtenTensorHandle handle = nullptr;
    const int32_t kind = device_.is_cpu() ? aoti_torch_device_type_cpu() : aoti_torch_device_type_cuda();
    TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(shape.rank(), shape.dims().data(), strides.data(),
                                                    static_cast<int32_t>(type), kind, device_.number, &handle));
    return TorchTensor(handle);
  }

  void* Keep(ScalarType type, const Shape& shape) noexcept {
    try {
      TorchTensor tensor = Make(type, shape);
      void* const data = tensor.mutable_data_ptr();
      blocks_.push_back({data, std::move(tensor)});
      return data;
    } catch (...) {  // torch has no memory
      return nullptr;
    }
  }

  // A piece of a chunk. Chunks grow, so that small calls take little memory and large ones few chunks.
  void* Carve(size_t bytes) noexcept {
    constexpr size_t kUnit = 256;  // torch aligns its blocks so
    bytes = (bytes + kUnit - 1) / kUnit * kUnit;
    if (bytes > chunk_left_) {
      const size_t chunk = std::max(next_chunk_, bytes);
      void* const data = Keep(ScalarType::Byte, Shape{static_cast<int64_t>(chunk)});
      if (data == nullptr) return nullptr;
      chunk_ = static_cast<char*>(data);
      chunk_left_ = chunk;
      next_chunk_ = std::min(4 * chunk, kMaxChunk);
      blocks_.back().data = nullptr;  // the first piece has the address of the chunk and must not free it
    }
    chunk_left_ -= bytes;
    return std::exchange(chunk_, chunk_ + bytes);
  }

  static constexpr size_t kMaxInChunk = 128 << 10, kMaxChunk = 1 << 20;

  const Device device_;
  std::vector<Block> blocks_;  // a handful
  char* chunk_ = nullptr;      // the rest of the last chunk
  size_t chunk_left_ = 0;
  size_t next_chunk_ = 64 << 10;
};

void Throw(std::string_view op, const Status& status) {
  std::string message(CodeName(status.code()));
  message.append(": raggrad::").append(op).append(": ").append(TextWithoutOperator(status.message()));
  throw std::runtime_error(message);
}

Call::Call(std::string_view op, const TorchTensor& like, const MaybeText& accumulation)
    : op_(op), memory_(std::make_unique<CallMemory>(DeviceOf(like))) {
  const Device device = DeviceOf(like);
  context_.executor = &TorchExecutor();
  if (device.is_cpu()) {
    context_.allocator = memory_.get();
  } else {
    context_.allocator = &HostScratch();
    context_.device_allocator = memory_.get();
    context_.stream = CurrentStream(device.number);
  }
  if (!accumulation) return;
  context_.accumulation = Get(AccumulationByName(*accumulation));
}

Call::~Call() = default;

TensorView Call::View(const TorchTensor& tensor) {
  const TorchTensor* rows = &tensor;
  if (!tensor.is_contiguous()) rows = &copies_.emplace_back(::torch::stable::contiguous(tensor));
  return {rows->const_data_ptr(), DTypeOf(op_, tensor), ShapeOf(tensor), DeviceOf(tensor)};
}

MutableTensorView Call::Mutable(const TorchTensor& tensor, std::string_view name) {
  if (!tensor.is_contiguous()) {
    Throw(op_, MakeError(Code::kInvalidArgument, "[", name, ": expected a contiguous tensor]"));
  }
  return {tensor.mutable_data_ptr(), DTypeOf(op_, tensor), ShapeOf(tensor), DeviceOf(tensor)};
}

void Call::ExpectScratch(int64_t bytes) noexcept { memory_->Expect(static_cast<size_t>(bytes)); }

TorchTensor Call::Take(Tensor output) { return memory_->Take(output); }

SegmentCombiner CombinerOf(std::string_view op, std::string_view argument, std::string_view name) {
  const Result<SegmentCombiner> combiner = CombinerByName(name, argument);
  if (!combiner.ok()) Throw(op, combiner.status());
  return *combiner;
}

}  // namespace raggrad::torch_door
