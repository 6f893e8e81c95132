#include "raggrad/core/context.h"

#include "raggrad/core/error_text.h"

namespace raggrad {

Result<Accumulation> AccumulationByName(std::string_view name) noexcept {
  if (name == "sequential") return Accumulation::kSequential;
  if (name == "fast") return Accumulation::kFast;
  if (name == "reproducible") return Accumulation::kReproducible;
  return MakeError(Code::kInvalidArgument,
                   "no such accumulation [accumulation: expected 'sequential', 'fast' or 'reproducible', got '", name,
                   "']");
}

Result<Tensor> AllocateOutput(const Context& ctx, int index, DType dtype, Shape shape, size_t extra_bytes) noexcept {
  return AllocateOutput(*ctx.allocator, Device::Cpu(), index, dtype, std::move(shape), extra_bytes);
}

Result<Tensor> AllocateOutput(Allocator& allocator, Device device, int index, DType dtype, Shape shape,
                              size_t extra_bytes) noexcept {
  if (!shape.valid()) return Status(Code::kResourceExhausted, "no memory for the shape of an output");
  const std::optional<int64_t> elements = shape.NumElements();
  if (!elements) {
    return MakeError(Code::kInvalidArgument, "Shape ", shape, " results in overflow when computing number of elements");
  }
  size_t bytes = 0;
  void* data = nullptr;
  if (!__builtin_mul_overflow(static_cast<size_t>(*elements), DTypeSize(dtype), &bytes) &&
      !__builtin_add_overflow(bytes, extra_bytes, &bytes)) {
    if (bytes == 0) return Tensor(&allocator, nullptr, 0, dtype, std::move(shape), device);
    data = allocator.AllocateOutput({index, dtype, shape, bytes, device});
  }
  if (data == nullptr) {
    return MakeError(Code::kResourceExhausted, "OOM when allocating tensor with shape", shape, " and type ", dtype);
  }
  return Tensor(&allocator, data, bytes, dtype, std::move(shape), device);
}

}  // namespace raggrad
