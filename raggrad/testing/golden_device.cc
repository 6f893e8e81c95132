#include "raggrad/testing/golden_device.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <utility>

#include "raggrad/cuda/cuda.h"

namespace raggrad::testing {
namespace {

constexpr std::array<std::string_view, 10> kHostInputs = {"dense_output_dim0",
                                                          "dense_shape",
                                                          "dense_values_shape",
                                                          "input_start",
                                                          "nrows",
                                                          "num_segments",
                                                          "output_dim0",
                                                          "shape",
                                                          "size",
                                                          "start"};

struct CannotBeCopied : std::runtime_error {
  using std::runtime_error::runtime_error;
};

Tensor Copy(const TensorView& view, Device to) {
  Result<Tensor> copy = CopyTensor(view, to);
  if (!copy.ok()) throw CannotBeCopied(std::string(copy.status().message()));
  return *std::move(copy);
}

std::vector<Tensor> Copy(std::span<const TensorView> views, Device to) {
  std::vector<Tensor> copies;
  for (const TensorView& view : views) copies.push_back(Copy(view, to));
  return copies;
}

// Splits of elements are in host memory in any case.
OwnedVariantArray Copy(const VariantArrayView& variant, Device to) {
  std::vector<std::optional<OwnedVariantArray::Ragged>> elements;
  for (const std::optional<RaggedView>& element : variant.elements) {
    elements.emplace_back();
    if (!element) continue;
    elements.back() = OwnedVariantArray::Ragged{Copy(element->nested_splits, Device::kCpu), Copy(element->values, to)};
  }
  return {variant.shape, std::move(elements)};
}

struct CopyInput {
  Device to;

  GoldenValue operator()(const Tensor& tensor) const { return Copy(tensor.view(), to); }
  GoldenValue operator()(const OwnedTensorList& list) const { return OwnedTensorList(Copy(list.views(), to)); }
  GoldenValue operator()(const OwnedVariantArray& variant) const { return Copy(variant.view(), to); }
};

}  // namespace

std::optional<GoldenCase> CopyToDevice(const GoldenCase& golden) {
  GoldenCase copy;
  copy.place = golden.place;
  copy.op = golden.op;
  copy.attrs = golden.attrs;
  try {
    for (const auto& [name, value] : golden.inputs) {
      const bool host = std::ranges::find(kHostInputs, name) != kHostInputs.end();
      copy.inputs.emplace(name, std::visit(CopyInput{host ? Device::kCpu : Device::kCuda}, value));
    }
  } catch (const CannotBeCopied&) {
    return std::nullopt;
  }
  return copy;
}

void WithHostCopy(const GoldenView& output, const std::function<void(const GoldenView&)>& f) {
  if (const auto* const view = std::get_if<TensorView>(&output)) {
    const Tensor copy = Copy(*view, Device::kCpu);
    return f(copy.view());
  }
  if (const auto* const list = std::get_if<std::span<const Tensor>>(&output)) {
    std::vector<Tensor> copies;
    for (const Tensor& tensor : *list) copies.push_back(Copy(tensor.view(), Device::kCpu));
    return f(std::span<const Tensor>(copies));
  }
  const OwnedVariantArray copy = Copy(std::get<VariantArrayView>(output), Device::kCpu);
  f(copy.view());
}

LimitedDeviceMemory::LimitedDeviceMemory(size_t limit) : limit_(limit), pool_(*CudaPool(nullptr)) {}

}  // namespace raggrad::testing
