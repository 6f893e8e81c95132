#include "raggrad/capi/c_context.h"

#include "raggrad/capi/c_structs.h"
#include "raggrad/core/error_text.h"
#include "raggrad/core/isa.h"
#include "raggrad/cuda/cuda.h"

namespace raggrad::capi {
namespace {

Result<std::optional<Isa>> ReadIsa(std::string_view function, const char* name) noexcept {
  if (name == nullptr) return std::optional<Isa>();
  for (const Isa isa : AvailableIsas()) {
    if (IsaName(isa) == name) return std::optional(isa);
  }
  return InvalidArgument(function, "instruction set '", std::string_view(name), "' is not available [context.isa]");
}

template <class Allocate, class Deallocate>
Status CheckPair(std::string_view function, std::string_view prefix, Allocate allocate,
                 Deallocate deallocate) noexcept {
  if ((allocate == nullptr) == (deallocate == nullptr)) return {};
  return InvalidArgument(function, "context has one of ", prefix, "allocate and ", prefix,
                         "deallocate [context: expected both or neither]");
}

}  // namespace

Status ReadContext(std::string_view function, const rg_context* given, rg_context& context) noexcept {
  if (given == nullptr) return {};
  if (Status s = ReadStruct(function, {"context"}, given, context); !s.ok()) return s;
  if (Status s = CheckPair(function, "", context.allocate, context.deallocate); !s.ok()) return s;
  if (Status s = CheckPair(function, "device_", context.device_allocate, context.device_deallocate); !s.ok()) return s;
  const bool workers_ok = context.parallel_for ? context.num_workers >= 1 : (context.num_workers | 1) == 1;
  if (!workers_ok) {
    return InvalidArgument(function, "no such number of workers [context.num_workers: expected ",
                           context.parallel_for ? "at least 1 with parallel_for" : "0 or 1 without parallel_for",
                           ", got ", context.num_workers, "]");
  }
  if (context.accumulation < RG_ACCUMULATION_DEFAULT || context.accumulation > RG_ACCUMULATION_REPRODUCIBLE) {
    return InvalidArgument(function, "no such accumulation [context.accumulation: expected 0 to 3, got ",
                           context.accumulation, "]");
  }
  return {};
}

bool Free(const rg_context& context, const rg_block& block) noexcept {
  if (block.data == nullptr) return true;
  const bool on_device = block.device_kind == RG_CUDA;
  if (const auto deallocate = on_device ? context.device_deallocate : context.deallocate; deallocate != nullptr) {
    deallocate(context.user, block.data, block.bytes);
    return true;
  }
  Allocator* memory = &DefaultAllocator();
  if (on_device) {
    const Result<Allocator*> pool = CudaPool(Device::Cuda(block.device_number), context.stream);
    if (!pool.ok()) return false;
    memory = *pool;
  }
  memory->Deallocate(block.data, block.bytes);
  return true;
}

void* CallbackAllocator::Ask(size_t bytes, const rg_output_spec* output) noexcept {
  const auto allocate = kind_ == DeviceKind::kCuda ? context_.device_allocate : context_.allocate;
  void* const pointer = allocate(context_.user, bytes, output);
  if (reinterpret_cast<uintptr_t>(pointer) % kAlignment == 0) return pointer;
  misaligned_ = true;
  Deallocate(pointer, bytes);
  return nullptr;
}

void* CallbackAllocator::Allocate(size_t bytes) noexcept { return Ask(bytes, nullptr); }

void* CallbackAllocator::AllocateOutput(const OutputSpec& spec) noexcept {
  const rg_output_spec output{sizeof(output),
                              spec.bytes,
                              spec.index,
                              static_cast<int32_t>(spec.dtype),
                              static_cast<int32_t>(spec.device.kind),
                              spec.device.number,
                              spec.shape.rank(),
                              spec.shape.dims().data()};
  return Ask(spec.bytes, &output);
}

void CallbackAllocator::Deallocate(void* pointer, size_t bytes) noexcept {
  const auto deallocate = kind_ == DeviceKind::kCuda ? context_.device_deallocate : context_.deallocate;
  deallocate(context_.user, pointer, bytes);
}

void CallbackExecutor::Run(int64_t tasks, TaskRef body) noexcept {
  const rg_task task = [](void* argument, int64_t index) { (*static_cast<const TaskRef*>(argument))(index); };
  context_.parallel_for(context_.user, tasks, task, &body);
}

Status GivenContext::Read(std::string_view function, const rg_context* given) noexcept {
  if (Status s = ReadContext(function, given, given_); !s.ok()) return s;
  if (given_.allocate) context_.allocator = &host_memory_;
  if (given_.device_allocate) context_.device_allocator = &device_memory_;
  context_.stream = given_.stream;
  if (given_.parallel_for) {
    context_.executor = &executor_;
  } else if (given_.num_workers == 1) {
    context_.executor = &SerialExecutor();
  }
  if (given_.accumulation == RG_ACCUMULATION_SEQUENTIAL) context_.accumulation = Accumulation::kSequential;
  if (given_.accumulation == RG_ACCUMULATION_FAST) context_.accumulation = Accumulation::kFast;
  if (given_.accumulation == RG_ACCUMULATION_REPRODUCIBLE) context_.accumulation = Accumulation::kReproducible;
  const Result<std::optional<Isa>> isa = ReadIsa(function, given_.isa);
  if (isa.ok()) context_.isa = *isa;
  return isa.status();
}

Status GivenContext::Explain(std::string_view function, const Status& status) const noexcept {
  if (status.ok() || (!host_memory_.misaligned() && !device_memory_.misaligned())) return status;
  return InvalidArgument(function, "memory is not aligned [context.",
                         host_memory_.misaligned() ? "allocate" : "device_allocate", ": expected a multiple of ",
                         RG_ALIGNMENT, "]");
}

}  // namespace raggrad::capi
