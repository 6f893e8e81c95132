// The list of handlers, which Python registers with XLA.
//
// All of them have the attributes `function`, the name of the Python function that the user called, and `accumulation`,
// "sequential", "fast", "reproducible" or nothing, which leaves the order of sums to the device.
#include <array>
#include <exception>

#include "segments.h"
#include "sparse.h"
#include "updates.h"

namespace raggrad::jax_door {
namespace {

using Operator = Status (*)(Call&);

// Names that differ between the engine and the Python functions.
constexpr std::array<Renamed, 4> kBagNames = {
    {{"indices", "ids"}, {"data", "table"}, {"max_unique", "size"}, {"dense_output_dim0", "num_rows"}}};
constexpr std::array<Renamed, 2> kUpdateNames = {{{"indices", "rows.ids"}, {"values", "rows.values"}}};
constexpr std::array<Renamed, 3> kNames = {
    {{"max_full", "max_entries"}, {"max_kept", "max_entries"}, {"dense_shape", "shape"}}};

// Returns what run() does, or its exception as an error.
template <class F>
ffi::Error Caught(const F& run) noexcept {
  try {
    return run();
  } catch (const std::exception& error) {  // no memory, or the library does not fit the Python code
    return ffi::Error::Internal(std::string("raggrad.jax: ").append(error.what()));
  }
}

template <Operator kOperator, const auto& kRenamed>
ffi::Error Run(Call&& call) {
  return call.Report(kOperator(call), kRenamed);
}

template <Operator kOperator, const auto& kRenamed>
XLA_FFI_Error* OnHost(XLA_FFI_CallFrame* frame) {
  static const auto* const handler = ffi::Ffi::Bind()
                                         .Ctx<ffi::ThreadPool>()
                                         .RemainingArgs()
                                         .RemainingRets()
                                         .Attrs()
                                         .To([](ffi::ThreadPool threads, ffi::RemainingArgs arguments,
                                                ffi::RemainingRets results, ffi::Dictionary attributes) {
                                           return Caught([&] {
                                             const Operands operands = {arguments, results, attributes};
                                             return Run<kOperator, kRenamed>(Call(operands, threads));
                                           });
                                         })
                                         .release();
  return handler->Call(frame);
}

// For operators that wait for the GPU.
template <Operator kOperator, const auto& kRenamed>
XLA_FFI_Error* OnCuda(XLA_FFI_CallFrame* frame) {
  static const auto* const handler =
      ffi::Ffi::Bind()
          .Ctx<ffi::PlatformStream<void*>>()
          .Ctx<ffi::DeviceOrdinal>()
          .Ctx<ffi::ScratchAllocator>()
          .RemainingArgs()
          .RemainingRets()
          .Attrs()
          .To([](void* stream, int32_t device, ffi::ScratchAllocator allocator, ffi::RemainingArgs arguments,
                 ffi::RemainingRets results, ffi::Dictionary attributes) {
            return Caught([&] {
              XlaScratch scratch(allocator);
              const Operands operands = {arguments, results, attributes};
              return Run<kOperator, kRenamed>(Call(operands, stream, device, scratch));
            });
          })
          .release();
  return handler->Call(frame);
}

// For operators that never wait: XLA may record them in a command buffer, which is a CUDA graph.
template <Operator kOperator, const auto& kRenamed>
XLA_FFI_Error* InCommandBuffers(XLA_FFI_CallFrame* frame) {
  static const auto* const handler =
      ffi::Ffi::Bind()
          .Ctx<ffi::PlatformStream<void*>>()
          .Ctx<ffi::DeviceOrdinal>()
          .RemainingArgs()
          .RemainingRets()
          .Attrs()
          .To(
              [](void* stream, int32_t device, ffi::RemainingArgs arguments, ffi::RemainingRets results,
                 ffi::Dictionary attributes) {
                return Caught([&] {
                  ScratchResult scratch(results);
                  const Operands operands = {arguments, results, attributes};
                  return Run<kOperator, kRenamed>(Call(operands, stream, device, scratch));
                });
              },
              {ffi::Traits::kCmdBufferCompatible})
          .release();
  return handler->Call(frame);
}

}  // namespace
}  // namespace raggrad::jax_door

using namespace raggrad::jax_door;

extern "C" {

// A handler for each platform; null where there is none.
struct raggrad_jax_handler {
  const char* name;
  XLA_FFI_Handler* host;
  XLA_FFI_Handler* cuda;
};

// The last one has no name.
__attribute__((visibility("default"))) extern const raggrad_jax_handler raggrad_jax_handlers[] = {
    {"raggrad_segment", OnHost<Segment, kNames>, InCommandBuffers<Segment, kNames>},
    {"raggrad_segment_grad", OnHost<SegmentGrad, kNames>, nullptr},
    {"raggrad_bag", OnHost<Bag, kBagNames>, OnCuda<Bag, kBagNames>},
    {"raggrad_bag_grad", OnHost<BagGrad, kBagNames>, OnCuda<BagGradOrdered, kBagNames>},
    {"raggrad_bag_weights_grad", OnHost<BagWeightsGrad, kBagNames>, OnCuda<BagWeightsGradOrdered, kBagNames>},
    {"raggrad_bag_grad_rows", OnHost<BagGradRows, kBagNames>, InCommandBuffers<BagGradRowsDropping, kBagNames>},
    {"raggrad_apply_sgd", OnHost<ApplySgd, kUpdateNames>, nullptr},
    {"raggrad_apply_adagrad", OnHost<ApplyAdagrad, kUpdateNames>, nullptr},
    {"raggrad_apply_adam", OnHost<ApplyAdam, kUpdateNames>, nullptr},
    {"raggrad_fill_empty_rows", OnHost<FillEmptyRows, kNames>, InCommandBuffers<FillEmptyRows, kNames>},
    {"raggrad_fill_empty_rows_grad", OnHost<FillEmptyRowsGrad, kNames>, OnCuda<FillEmptyRowsGrad, kNames>},
    {"raggrad_slice", OnHost<Slice, kNames>, InCommandBuffers<Slice, kNames>},
    {nullptr, nullptr, nullptr},
};
}
