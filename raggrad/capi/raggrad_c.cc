#include "raggrad/capi/raggrad_c.h"

#include "raggrad/capi/c_call.h"
#include "raggrad/core/version.h"
#include "raggrad/cuda/cuda.h"

using namespace raggrad;  // NOLINT: everything here belongs to C
using raggrad::capi::CCall;
using raggrad::capi::Store;

void rg_output_free(const rg_context* context, rg_output* output) {
  constexpr std::string_view kFunction = "rg_output_free";
  rg_context given{};
  if (output == nullptr || !capi::ReadContext(kFunction, context, given).ok()) return;
  if (!capi::CheckStructSize(kFunction, {"output"}, output, capi::kFirstSize<rg_output>).ok()) return;
  const rg_block memory{output->data, output->bytes, output->device_kind, output->device_number};
  if (!capi::Free(given, memory)) return;
  [[maybe_unused]] const Status zeroed = capi::WriteStruct(kFunction, {"output"}, output, rg_output{});
}

rg_status rg_cuda_status(rg_error* error) {
  return CCall("rg_cuda_status", nullptr, error, {}).Run([](const Context&) { return CudaStatus(); });
}

rg_status rg_copy_tensor(const rg_context* context, const rg_tensor* from, int32_t device_kind, int32_t device_number,
                         rg_output* output, rg_error* error) {
  CCall call("rg_copy_tensor", context, error, {output});
  const TensorView source = call.Read("from", from);
  const Result<Device> device = capi::ReadDevice(call.function(), {"output"}, device_kind, device_number);
  call.Note(device.status());
  return call.Run([&](const Context& ctx) { return CopyTensor(source, *device, ctx); },
                  [&](Tensor& copy) { Store(copy, output); });
}

const char* rg_version(void) { return Version().data(); }
int32_t rg_abi_version(void) { return RG_ABI_VERSION; }
const char* rg_code_name(rg_status code) { return CodeName(static_cast<Code>(code)).data(); }
const char* rg_dtype_name(int32_t dtype) { return DTypeName(static_cast<DType>(dtype)).data(); }
int32_t rg_dtype_from_name(const char* name) { return name == nullptr ? 0 : static_cast<int32_t>(DTypeFromName(name)); }
size_t rg_dtype_size(int32_t dtype) { return DTypeSize(static_cast<DType>(dtype)); }
