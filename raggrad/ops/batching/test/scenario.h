// Reads recorded scenarios: calls that several threads made of TensorFlow's batching operators. One JSON object per
// line:
//
//   {"name", "note", "tags": [...], "steps": [STEP], "results": {call: OUTCOME}}
//   STEP = {"call": operator, "id_of_call": number, "inputs": {name: TENSOR or [TENSOR]}, "attrs": {...},
//           "expect": "returns_now" | "waits" | "error", "completes": [earlier calls], "output(s)" or "error"}
//        | {"call": "Await", "target": call, "also_returned": [calls]} | {"call": "Sleep", "micros": n}
//   OUTCOME = {"output": TENSOR} | {"outputs": {name: TENSOR or [TENSOR]}} | {"error": {"code", "message"}}
//           | {"pending": true}
//
// crashes.jsonl has scripts that TensorFlow does not survive: {"name", "steps", "want": {call: words}}.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "raggrad/core/status.h"
#include "raggrad/core/tensor.h"

namespace raggrad::testing {

struct ScenarioOutcome {
  bool pending = false;
  Code code = Code::kOk;
  std::string message;
  std::vector<Tensor> outputs;  // Batch: batched_tensors, batch_index, id
};

struct ScenarioStep {
  std::string call;
  int number = 0;  // of the call, or of the call to await
  std::map<std::string, std::vector<Tensor>> inputs;
  std::map<std::string, std::string> strings;        // attributes
  std::map<std::string, std::vector<int64_t>> ints;  // attributes: one number, or a list
  std::string expect;
  std::vector<int> completes;  // calls that this one completes, or that return together with the awaited one
  int64_t micros = 0;
};

struct Scenario {
  std::string place;  // "<file>:<line>: <name>"
  std::string name;
  std::vector<std::string> tags;
  std::vector<ScenarioStep> steps;
  std::map<int, ScenarioOutcome> results;
  std::map<int, std::string> wants;

  bool Has(const std::string& tag) const;
};

// Throws std::runtime_error, with the place, if the file cannot be read or a line is broken.
std::vector<Scenario> ReadScenarios(const std::filesystem::path& file);

}  // namespace raggrad::testing
