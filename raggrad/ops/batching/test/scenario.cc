#include "raggrad/ops/batching/test/scenario.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "raggrad/testing/golden_json.h"

namespace raggrad::testing {
namespace {

using nlohmann::json;

std::vector<Tensor> ReadTensors(const json& value) {
  std::vector<Tensor> tensors;
  if (value.is_array()) {
    for (const json& element : value) tensors.push_back(ReadGoldenTensor(element));
  } else {
    tensors.push_back(ReadGoldenTensor(value));
  }
  return tensors;
}

ScenarioStep ReadStep(const json& object) {
  ScenarioStep step;
  step.call = object.at("call");
  step.number = object.contains("target") ? object.at("target").get<int>() : object.value("id_of_call", 0);
  step.micros = object.value("micros", int64_t{0});
  step.expect = object.value("expect", "");
  step.completes = object.value(object.contains("also_returned") ? "also_returned" : "completes", std::vector<int>{});
  const json inputs = object.value("inputs", json::object());
  for (const auto& [name, value] : inputs.items()) {
    step.inputs.emplace(name, ReadTensors(value));
  }
  const json attrs = object.value("attrs", json::object());
  for (const auto& [name, value] : attrs.items()) {
    if (value.is_string()) {
      step.strings.emplace(name, value.get<std::string>());
    } else {
      step.ints.emplace(name, value.is_array() ? value.get<std::vector<int64_t>>() : std::vector{value.get<int64_t>()});
    }
  }
  return step;
}

Code ReadCode(int number) {
  const auto code = static_cast<Code>(number);
  if (CodeName(code) == "UNKNOWN") throw std::invalid_argument("no such error code: " + std::to_string(number));
  return code;
}

ScenarioOutcome ReadOutcome(const json& object) {
  ScenarioOutcome outcome;
  outcome.pending = object.value("pending", false);
  if (object.contains("error")) {
    outcome.code = ReadCode(object.at("error").at("code_int"));
    outcome.message = object.at("error").at("message");
  }
  if (object.contains("output")) outcome.outputs = ReadTensors(object.at("output"));
  if (object.contains("outputs")) {
    for (const char* const name : {"batched_tensors", "batch_index", "id"}) {
      for (Tensor& tensor : ReadTensors(object.at("outputs").at(name))) outcome.outputs.push_back(std::move(tensor));
    }
  }
  return outcome;
}

Scenario ReadScenario(const std::string& line, const std::string& place) {
  const json object = json::parse(line);
  Scenario scenario;
  scenario.name = object.at("name");
  scenario.place = place + ": " + scenario.name;
  scenario.tags = object.value("tags", std::vector<std::string>{});
  const json steps = object.value("steps", json::array());
  for (const json& step : steps) scenario.steps.push_back(ReadStep(step));
  const json results = object.value("results", json::object());
  for (const auto& [call, outcome] : results.items()) {
    scenario.results.emplace(std::stoi(call), ReadOutcome(outcome));
  }
  if (!scenario.steps.empty() && object.contains("want")) {
    for (const auto& [call, words] : object.at("want").items()) scenario.wants.emplace(std::stoi(call), words);
  }
  return scenario;
}

}  // namespace

bool Scenario::Has(const std::string& tag) const { return std::ranges::find(tags, tag) != tags.end(); }

std::vector<Scenario> ReadScenarios(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) throw std::runtime_error(file.string() + ":0: cannot be opened");
  std::vector<Scenario> scenarios;
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    const std::string place = file.string() + ":" + std::to_string(number);
    try {
      scenarios.push_back(ReadScenario(line, place));
    } catch (const std::exception& error) {  // our own, and those of the JSON library
      throw std::runtime_error(place + ": " + error.what());
    }
  }
  return scenarios;
}

}  // namespace raggrad::testing
