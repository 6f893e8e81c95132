#include "raggrad/testing/owned.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "raggrad/core/error_text.h"
#include "raggrad/testing/same_bits.h"

namespace raggrad::testing {
namespace {

Allocator& OperandMemory() {
  static auto& allocator = *new ExactAllocator;  // never destroyed: operands may be static
  return allocator;
}

Tensor NewTensor(DType dtype, Shape shape, size_t bytes) {
  void* const data = bytes == 0 ? nullptr : OperandMemory().Allocate(bytes);
  if (bytes != 0 && data == nullptr) std::abort();
  return {&OperandMemory(), data, bytes, dtype, std::move(shape), Device::Cpu()};
}

template <class... Parts>
std::string Text(const Parts&... parts) {
  std::string text;
  (AppendText(text, parts), ...);
  return text;
}

std::string HexOf(const void* element, size_t size) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (size_t i = 0; i < size; ++i) {
    const unsigned byte = static_cast<const unsigned char*>(element)[i];
    hex.push_back(kDigits[byte / 16]);
    hex.push_back(kDigits[byte % 16]);
  }
  return hex;
}

std::string Bytes(const String& element) { return HexOf(element.data, element.size); }
template <class T>
std::string Bytes(const T& element) {
  return HexOf(&element, sizeof(T));
}

}  // namespace

void* ExactAllocator::Allocate(size_t bytes) noexcept {
  void* memory = nullptr;
  if (requests_++ == fail_at_ || bytes > limit_ || posix_memalign(&memory, kAlignment, bytes) != 0) return nullptr;
  ++live_;
  return memory;
}

void ExactAllocator::Deallocate(void* pointer, size_t /*bytes*/) noexcept {
  --live_;
  std::free(pointer);
}

Tensor TensorOfBytes(DType dtype, Shape shape, std::string_view bytes) {
  Tensor tensor = NewTensor(dtype, std::move(shape), bytes.size());
  if (!bytes.empty()) std::memcpy(tensor.data(), bytes.data(), bytes.size());
  return tensor;
}

Tensor TensorOfStrings(Shape shape, const std::vector<std::string>& strings) {
  size_t bytes = strings.size() * sizeof(String);
  for (const std::string& string : strings) bytes += string.size();
  Tensor tensor = NewTensor(DType::kString, std::move(shape), bytes);
  String* element = tensor.As<String>();
  char* characters = reinterpret_cast<char*>(element + strings.size());
  for (const std::string& string : strings) {
    if (!string.empty()) std::memcpy(characters, string.data(), string.size());
    *element++ = {characters, string.size()};
    characters += string.size();
  }
  return tensor;
}

Tensor Gather(const TensorView& values, std::span<const int64_t> positions, const TensorView& otherwise) {
  const size_t size = DTypeSize(values.dtype);
  const Shape shape{static_cast<int64_t>(positions.size())};
  const auto element = [&](int64_t position) {
    return position < 0 ? otherwise.As<char>() : values.As<char>() + static_cast<size_t>(position) * size;
  };
  if (values.dtype == DType::kString) {
    std::vector<std::string> strings;
    for (const int64_t position : positions) {
      String string;
      std::memcpy(&string, element(position), size);
      strings.emplace_back(string.data, string.size);
    }
    return TensorOfStrings(shape, strings);
  }
  Tensor gathered = NewTensor(values.dtype, shape, positions.size() * size);
  char* out = gathered.As<char>();
  for (const int64_t position : positions) {
    std::memcpy(out, element(position), size);
    out += size;
  }
  return gathered;
}

Tensor GatherOrZero(const TensorView& values, std::span<const int64_t> positions) {
  const std::string zero(DTypeSize(values.dtype), '\0');
  return Gather(values, positions, {zero.data(), values.dtype, Shape{}});
}

OwnedTensorList::OwnedTensorList(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {
  for (const Tensor& tensor : tensors_) views_.push_back(tensor.view());
}

OwnedVariantArray::OwnedVariantArray(Shape shape, std::vector<std::optional<Ragged>> elements)
    : elements_(std::move(elements)), split_views_(elements_.size()), element_views_(elements_.size()) {
  for (size_t i = 0; i < elements_.size(); ++i) {
    if (!elements_[i]) continue;
    for (const Tensor& splits : elements_[i]->nested_splits) split_views_[i].push_back(splits.view());
    element_views_[i] = RaggedView{split_views_[i], elements_[i]->values.view()};
  }
  view_ = {std::move(shape), element_views_};
}

std::string Difference(const TensorView& got, const TensorView& want) {
  if (got.dtype != want.dtype) return Text("dtype is ", got.dtype, ", expected ", want.dtype);
  if (!(got.shape == want.shape)) return Text("shape is ", got.shape, ", expected ", want.shape);
  const int64_t size = want.shape.NumElements().value_or(0);
  if (want.dtype != DType::kString && size > 0 &&
      std::memcmp(got.data, want.data, static_cast<size_t>(size) * DTypeSize(want.dtype)) == 0) {
    return {};
  }
  std::string difference;
  const auto compare = [&]<class T>() -> Status {
    for (int64_t i = 0; i < size && difference.empty(); ++i) {
      const T &a = got.As<T>()[i], &b = want.As<T>()[i];
      if (!SameBits(a, b)) difference = Text("element ", i, " has the bytes ", Bytes(a), ", expected ", Bytes(b));
    }
    return {};
  };
  const Status visited = Visit(RaggedTypes{}, want.dtype, compare);
  return visited.ok() ? difference : Text("cannot compare tensors of dtype ", want.dtype);
}

}  // namespace raggrad::testing
