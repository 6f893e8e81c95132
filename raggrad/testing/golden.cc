#include "raggrad/testing/golden.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "raggrad/testing/golden_json.h"

namespace raggrad::testing {
namespace {

using nlohmann::json;

// Reports a fault of a line; ReadGoldens adds the place.
[[noreturn]] void Fail(const std::string& what) { throw std::invalid_argument(what); }

constexpr std::array<int8_t, 256> kBase64Values = [] {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int8_t>(i);
  }
  return values;
}();

std::string DecodeBase64(std::string_view text) {
  if (text.size() % 4 != 0) Fail("base64 of a length that is no multiple of 4");
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int8_t value = i + padding >= text.size() ? int8_t{0} : kBase64Values[static_cast<unsigned char>(text[i])];
    if (value < 0) Fail("'" + std::string(1, text[i]) + "' is not in the base64 alphabet");
    bits = bits << 6 | static_cast<uint32_t>(value);
    if (i % 4 == 3) {
      for (const int shift : {16, 8, 0}) bytes.push_back(static_cast<char>(bits >> shift & 0xff));
    }
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

// Counts the elements of a shape, even where the product of the first dimensions overflows before it meets a zero.
int64_t CountElements(const std::vector<int64_t>& dims) {
  if (std::ranges::any_of(dims, [](int64_t dim) { return dim < 0; })) Fail("a negative dimension");
  if (std::ranges::find(dims, 0) != dims.end()) return 0;
  const auto elements = Shape::Product(dims);
  if (!elements) Fail("a shape with too many elements");
  return *elements;
}

Tensor ReadTensor(const json& value) {
  const auto name = value.at("dtype").get<std::string>();
  const DType dtype = DTypeFromName(name);
  if (dtype == DType::kInvalid) Fail("no such dtype: " + name);
  const auto dims = value.at("shape").get<std::vector<int64_t>>();
  if (dims.size() > Shape::kMaxRank) Fail("a shape of rank " + std::to_string(dims.size()));
  const auto elements = static_cast<size_t>(CountElements(dims));
  const json& data = value.at("data");
  const auto check_size = [&](size_t got, size_t expected) {
    if (got != expected) Fail("data of size " + std::to_string(got) + ", the shape needs " + std::to_string(expected));
  };
  if (dtype != DType::kString) {
    const std::string bytes = DecodeBase64(data.get<std::string>());
    check_size(bytes.size(), elements * DTypeSize(dtype));
    return TensorOfBytes(dtype, Shape(dims), bytes);
  }
  std::vector<std::string> strings;
  if (data.is_array()) {  // otherwise "": no elements
    for (const json& element : data) strings.push_back(DecodeBase64(element.get<std::string>()));
  }
  check_size(strings.size(), elements);
  return TensorOfStrings(Shape(dims), strings);
}

std::vector<Tensor> ReadTensors(const json& list) {
  std::vector<Tensor> tensors;
  for (const json& value : list) tensors.push_back(ReadTensor(value));
  return tensors;
}

OwnedVariantArray ReadVariants(const json& value) {
  const auto dims = value.at("shape").get<std::vector<int64_t>>();
  std::vector<std::optional<OwnedVariantArray::Ragged>> elements;
  for (const json& element : value.at("elements")) {
    if (element.is_null()) {
      elements.emplace_back();
    } else {
      elements.push_back(
          OwnedVariantArray::Ragged{ReadTensors(element.at("nested_splits")), ReadTensor(element.at("values"))});
    }
  }
  if (static_cast<int64_t>(elements.size()) != CountElements(dims)) Fail("elements do not fill the variant's shape");
  return {Shape(dims), std::move(elements)};
}

GoldenValues ReadValues(const json& object) {
  GoldenValues values;
  for (const auto& [name, value] : object.items()) {
    if (value.is_array()) {
      values.emplace(name, OwnedTensorList(ReadTensors(value)));
    } else if (value.at("dtype") == "variant") {
      values.emplace(name, ReadVariants(value));
    } else {
      values.emplace(name, ReadTensor(value));
    }
  }
  return values;
}

Code ReadCode(const std::string& name) {
  static const std::map<std::string, Code> codes = {
      {"OK", Code::kOk},
      {"InvalidArgument", Code::kInvalidArgument},
      {"NotFound", Code::kNotFound},
      {"ResourceExhausted", Code::kResourceExhausted},
      {"Internal", Code::kInternal},
  };
  const auto found = codes.find(name);
  if (found == codes.end()) Fail("no such error code: " + name);
  return found->second;
}

GoldenCase ReadCase(const std::string& line, const std::string& place) {
  const json object = json::parse(line);
  GoldenCase result;
  result.place = place + ": " + object.at("name").get<std::string>();
  result.op = object.at("op").get<std::string>();
  result.note = object.value("note", "");
  const json attrs = object.value("attrs", json::object());
  for (const auto& [name, value] : attrs.items()) {
    result.attrs.emplace(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  result.inputs = ReadValues(object.at("inputs"));
  if (object.contains("error")) {
    result.code = ReadCode(object.at("error").at("code").get<std::string>());
    result.message = object.at("error").value("message", "");
  }
  if (result.code == Code::kOk) result.outputs = ReadValues(object.at("outputs"));
  return result;
}

template <class T>
const T& Find(const GoldenCase& golden, std::string_view name) {
  const auto found = golden.inputs.find(name);
  const T* const value = found == golden.inputs.end() ? nullptr : std::get_if<T>(&found->second);
  if (value == nullptr) throw GoldenError(golden.place + ": has no input '" + std::string(name) + "' of that kind");
  return *value;
}

const std::string& FindAttr(const GoldenCase& golden, std::string_view name) {
  const auto found = golden.attrs.find(name);
  if (found == golden.attrs.end()) throw GoldenError(golden.place + ": has no attribute '" + std::string(name) + "'");
  return found->second;
}

template <class Got, class Want, class At>
std::string FirstDifference(std::string_view what, const Got& got, const Want& want, const At& difference_at) {
  if (got.size() != want.size()) {
    return std::to_string(got.size()) + " " + std::string(what) + "s, expected " + std::to_string(want.size());
  }
  for (size_t i = 0; i < want.size(); ++i) {
    if (const std::string difference = difference_at(i); !difference.empty()) {
      return std::string(what) + " " + std::to_string(i) + ": " + difference;
    }
  }
  return "";
}

std::string Compare(const TensorView& got, const Tensor& want) { return Difference(got, want.view()); }

std::string Compare(std::span<const Tensor> got, const OwnedTensorList& want) {
  return FirstDifference("tensor", got, want.views(),
                         [&](size_t i) { return Difference(got[i].view(), want.views()[i]); });
}

std::string CompareElements(const std::optional<RaggedView>& got, const std::optional<RaggedView>& want) {
  if (got.has_value() != want.has_value()) return want ? "is missing" : "is there, expected a missing one";
  if (!want) return "";
  const auto splits = [&](size_t i) { return Difference(got->nested_splits[i], want->nested_splits[i]); };
  const std::string difference = FirstDifference("split", got->nested_splits, want->nested_splits, splits);
  return difference.empty() ? Difference(got->values, want->values) : difference;
}

std::string Compare(const VariantArrayView& got, const OwnedVariantArray& want) {
  if (!(got.shape == want.view().shape)) return "the shape of the variant array differs";
  return FirstDifference("element", got.elements, want.view().elements,
                         [&](size_t i) { return CompareElements(got.elements[i], want.view().elements[i]); });
}

template <class Got, class Want>
std::string Compare(const Got&, const Want&) {
  return "is of another kind: tensor, list or variant array";
}

}  // namespace

std::string Difference(const GoldenView& got, const GoldenValue& want) {
  return std::visit([](const auto& a, const auto& b) { return Compare(a, b); }, got, want);
}

Tensor ReadGoldenTensor(const json& value) { return ReadTensor(value); }

const TensorView& GoldenCase::Input(std::string_view name) const { return Find<Tensor>(*this, name).view(); }

std::span<const TensorView> GoldenCase::ListInput(std::string_view name) const {
  return Find<OwnedTensorList>(*this, name).views();
}

const VariantArrayView& GoldenCase::VariantInput(std::string_view name) const {
  return Find<OwnedVariantArray>(*this, name).view();
}

DType GoldenCase::DTypeAttr(std::string_view name) const {
  const DType dtype = DTypeFromName(FindAttr(*this, name));
  if (dtype == DType::kInvalid) throw GoldenError(place + ": has no dtype '" + std::string(name) + "'");
  return dtype;
}

int64_t GoldenCase::IntAttr(std::string_view name) const {
  const std::string& text = FindAttr(*this, name);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw GoldenError(place + ": has no integer '" + std::string(name) + "'");
  }
  return value;
}

bool GoldenCase::BoolAttr(std::string_view name) const {
  const std::string& text = FindAttr(*this, name);
  if (text != "true" && text != "false") throw GoldenError(place + ": has no bool '" + std::string(name) + "'");
  return text == "true";
}

std::vector<GoldenCase> ReadGoldens(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) throw GoldenError(file.string() + ":0: cannot be opened");
  std::vector<GoldenCase> cases;
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    const std::string place = file.string() + ":" + std::to_string(number);
    try {
      cases.push_back(ReadCase(line, place));
    } catch (const std::exception& error) {  // our own, and those of the JSON library
      throw GoldenError(place + ": " + error.what());
    }
  }
  return cases;
}

std::vector<std::filesystem::path> GoldenFiles(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  std::error_code no_directory;
  for (const auto& entry : std::filesystem::directory_iterator(directory, no_directory)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace raggrad::testing
