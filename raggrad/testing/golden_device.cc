#include "raggrad/testing/golden_device.h"

#include <algorithm>
#include <array>
#include <optional>
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

bool StaysOnHost(std::string_view input) { return std::ranges::find(kHostInputs, input) != kHostInputs.end(); }

Tensor Copy(const TensorView& view, Device to) {
  Result<Tensor> copy = CopyTensor(view, to);
  if (!copy.ok()) throw GoldenError(std::string(copy.status().message()));
  return *std::move(copy);
}

std::vector<Tensor> Copy(std::span<const TensorView> views, Device to) {
  std::vector<Tensor> copies;
  for (const TensorView& view : views) copies.push_back(Copy(view, to));
  return copies;
}

// Splits of elements are always in host memory.
OwnedVariantArray Copy(const VariantArrayView& variant, Device to) {
  std::vector<std::optional<OwnedVariantArray::Ragged>> elements;
  for (const std::optional<RaggedView>& element : variant.elements) {
    elements.emplace_back();
    if (!element) continue;
    elements.back() = OwnedVariantArray::Ragged{Copy(element->nested_splits, Device::Cpu()), Copy(element->values, to)};
  }
  return {variant.shape, std::move(elements)};
}

// Appends the tensors of an input that would be in device memory.
struct AppendDeviceOperands {
  std::vector<TensorView>& operands;

  void operator()(const Tensor& tensor) const { operands.push_back(tensor.view()); }
  void operator()(const OwnedTensorList& list) const {
    operands.insert(operands.end(), list.views().begin(), list.views().end());
  }
  void operator()(const OwnedVariantArray& variant) const {
    for (const std::optional<RaggedView>& element : variant.view().elements) {
      if (element) operands.push_back(element->values);
    }
  }
};

struct CopyInput {
  Device to;

  GoldenValue operator()(const Tensor& tensor) const { return Copy(tensor.view(), to); }
  GoldenValue operator()(const OwnedTensorList& list) const { return OwnedTensorList(Copy(list.views(), to)); }
  GoldenValue operator()(const OwnedVariantArray& variant) const { return Copy(variant.view(), to); }
};

}  // namespace

std::string_view WhyNotOnDevice(const GoldenCase& golden) {
  std::vector<TensorView> operands;
  for (const auto& [name, value] : golden.inputs) {
    if (!StaysOnHost(name)) std::visit(AppendDeviceOperands{operands}, value);
  }
  if (operands.empty()) return "no operand would be in device memory";
  const auto values = golden.attrs.find("Tvalues");  // of the result, even if there is no operand with values
  const bool strings = values != golden.attrs.end() && DTypeFromName(values->second) == DType::kString;
  if (strings || std::ranges::find(operands, DType::kString, &TensorView::dtype) != operands.end()) {
    return "there are no strings in device memory";
  }
  return "";
}

GoldenCase CopyToDevice(const GoldenCase& golden) {
  GoldenCase copy;
  copy.place = golden.place;
  copy.op = golden.op;
  copy.attrs = golden.attrs;
  for (const auto& [name, value] : golden.inputs) {
    copy.inputs.emplace(name, std::visit(CopyInput{StaysOnHost(name) ? Device::Cpu() : Device::Cuda()}, value));
  }
  return copy;
}

void WithHostCopy(const GoldenView& output, const std::function<void(const GoldenView&)>& f) {
  if (const auto* const view = std::get_if<TensorView>(&output)) {
    const Tensor copy = Copy(*view, Device::Cpu());
    return f(copy.view());
  }
  if (const auto* const list = std::get_if<std::span<const Tensor>>(&output)) {
    std::vector<Tensor> copies;
    for (const Tensor& tensor : *list) copies.push_back(Copy(tensor.view(), Device::Cpu()));
    return f(std::span<const Tensor>(copies));
  }
  const OwnedVariantArray copy = Copy(std::get<VariantArrayView>(output), Device::Cpu());
  f(copy.view());
}

LimitedDeviceMemory::LimitedDeviceMemory(size_t limit) : limit_(limit), pool_(*CudaPool(Device::Cuda(), nullptr)) {}

}  // namespace raggrad::testing
