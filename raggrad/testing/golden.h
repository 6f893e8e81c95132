// Reads golden files: recorded calls of TensorFlow's operators, one JSON object per line.
//
//   {"name": "...", "op": "...", "attrs": {...}, "inputs": {name: VALUE}, "outputs": {name: VALUE}, "note": "..."}
//   {..., "error": {"code": "InvalidArgument", "message": "..."}, ...}      a call that fails
//
// VALUE is a TENSOR {"dtype", "shape", "data"}, a list of them, or a variant array {"dtype": "variant", "shape",
// "elements": [{"nested_splits": [TENSOR], "values": TENSOR} or null]}. `data` is the base64 of the little-endian
// elements; for strings a list, one base64 per element. In crashes.jsonl error.code may be "OK": then outputs count.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "raggrad/core/status.h"
#include "raggrad/testing/owned.h"

namespace raggrad::testing {

using GoldenValue = std::variant<Tensor, OwnedTensorList, OwnedVariantArray>;
using GoldenValues = std::map<std::string, GoldenValue, std::less<>>;
// An output of an operator, to be compared with such a value.
using GoldenView = std::variant<TensorView, std::span<const Tensor>, VariantArrayView>;

struct GoldenCase {
  std::string place;  // "<file>:<line>: <name>"
  std::string op;
  std::string note;
  std::map<std::string, std::string, std::less<>> attrs;  // strings as they are, other values as JSON
  GoldenValues inputs;
  GoldenValues outputs;
  Code code = Code::kOk;
  std::string message;  // of the error; may be empty

  // An input or attribute by name. They throw GoldenError, with the place, if there is none of that kind.
  const TensorView& Input(std::string_view name) const;
  std::span<const TensorView> ListInput(std::string_view name) const;
  const VariantArrayView& VariantInput(std::string_view name) const;
  DType DTypeAttr(std::string_view name) const;
  int64_t IntAttr(std::string_view name) const;
  bool BoolAttr(std::string_view name) const;
};

// "<file>:<line>: what is wrong"
class GoldenError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// All cases of a file, in order. Throws GoldenError for a file that cannot be read and for the first broken line.
std::vector<GoldenCase> ReadGoldens(const std::filesystem::path& file);

// "" if both are of one kind and every tensor in them agrees; otherwise the first difference in words.
std::string Difference(const GoldenView& got, const GoldenValue& want);

// The *.jsonl files of a directory, by name; none if there is no such directory.
std::vector<std::filesystem::path> GoldenFiles(const std::filesystem::path& directory);

}  // namespace raggrad::testing
