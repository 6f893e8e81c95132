// Plays the recorded scenarios: calls that several threads made of TensorFlow's operators, and scripts that TensorFlow
// does not survive. Files come from the project's goldens/batching/ and from the directory that
// RAGGRAD_SHARED_BATCHING_GOLDENS names, if any.
//
// UnbatchGrad is also compared with the serial model at every step. From the first step on at which raggrad corrects
// TensorFlow's behaviour (README.md), only the model counts.
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>

#include "raggrad/ops/batching/test/scenario_player.h"
#include "raggrad/ops/batching/test/unbatch_grad_model.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

class BatchingGolden : public ::testing::TestWithParam<std::filesystem::path> {
 protected:
  static std::vector<Scenario> Read(const char* name) {
    std::vector<Scenario> scenarios = ReadScenarios(GetParam() / name);
    EXPECT_FALSE(scenarios.empty()) << name << " has no scenarios";
    return scenarios;
  }
};

std::vector<std::filesystem::path> Folders() {
  std::vector<std::filesystem::path> folders = {RAGGRAD_BATCHING_GOLDENS};
  if (const char* const shared = std::getenv("RAGGRAD_SHARED_BATCHING_GOLDENS")) folders.emplace_back(shared);
  return folders;
}

INSTANTIATE_TEST_SUITE_P(Folders, BatchingGolden, ::testing::ValuesIn(Folders()),
                         [](const auto& folder) { return folder.index == 0 ? "Own" : "Shared"; });

// Plays the steps one after the other; every result must be as recorded.
void ExpectAsRecorded(const Scenario& scenario) {
  ScenarioPlayer player;
  std::set<int> ended;
  for (const ScenarioStep& step : scenario.steps) {
    SCOPED_TRACE("step of call " + std::to_string(step.number));
    player.Play(step);
    if (step.expect == "error" && scenario.Has("timeout")) player.Await(step.number);  // its timeout is over at once
    if (step.expect == "returns_now" || step.expect == "error") ended.insert(step.number);
    if (step.call == "Await") ended.insert(step.number);
    ended.insert(step.completes.begin(), step.completes.end());
    for (const auto& [call, outcome] : scenario.results) {
      if (ended.contains(call)) {
        EXPECT_EQ(player.DifferenceTo(outcome, call), "") << "call " << call;
      }
    }
    if (step.expect == "waits" && !ended.contains(step.number)) {
      EXPECT_EQ(player.Find(step.number), nullptr);
    }
  }
  for (const auto& [call, outcome] : scenario.results) {
    EXPECT_EQ(player.DifferenceTo(outcome, call), "") << "call " << call;
  }
}

TEST_P(BatchingGolden, UnbatchAsRecorded) {
  for (const Scenario& scenario : Read("unbatch.jsonl")) {
    SCOPED_TRACE(scenario.place);
    ExpectAsRecorded(scenario);
  }
}

TEST_P(BatchingGolden, BatchAsRecorded) {
  for (const Scenario& scenario : Read("batch.jsonl")) {
    SCOPED_TRACE(scenario.place);
    ExpectAsRecorded(scenario);
  }
}

// The result of a call by the model.
ScenarioOutcome OutcomeOf(const ModelEnd& end, const Scenario& scenario) {
  ScenarioOutcome outcome;
  outcome.code = end.code;
  outcome.message = end.text;
  if (end.code != Code::kOk) return outcome;
  const auto grad = [&](int call) -> const TensorView& {
    for (const ScenarioStep& step : scenario.steps) {
      if (step.number == call) return step.inputs.at("grad")[0].view();
    }
    throw std::out_of_range("no such call");
  };
  std::vector<TensorView> pieces;
  for (const int call : end.joined) pieces.push_back(grad(call));
  outcome.outputs.push_back(JoinedByHand(grad(end.call), pieces));
  return outcome;
}

struct Agreement {
  int whole = 0;                         // scenarios in which every step is as in TensorFlow
  std::map<std::string, int> corrected;  // by the first correction
};

void PlayAgainstModel(const Scenario& scenario, Agreement& agreement) {
  ScenarioPlayer player;
  std::map<std::pair<std::string, std::string>, UnbatchGradModel> models;
  std::string correction;
  for (const ScenarioStep& step : scenario.steps) {
    SCOPED_TRACE("call " + std::to_string(step.number));
    const UnbatchGradCall call = UnbatchGradCallOf(step);
    UnbatchGradModel& model =
        models[{call.resource.container, call.resource.name.empty() ? "UnbatchGrad" : call.resource.name}];
    const ModelEnds ends = model.Call(step.number, call);
    player.Play(step);
    std::vector<int> expected;
    for (const ModelEnd& end : ends) {
      expected.push_back(end.call);
      EXPECT_EQ(player.DifferenceTo(OutcomeOf(end, scenario), end.call), "") << "the model's result of " << end.call;
    }
    EXPECT_THAT(player.TakeNew(), ::testing::UnorderedElementsAreArray(expected));
    if (correction.empty()) correction = model.deviation();
    if (correction.empty()) {
      EXPECT_EQ(step.expect == "waits", player.Find(step.number) == nullptr);
      for (const int ended : expected) {
        EXPECT_EQ(player.DifferenceTo(scenario.results.at(ended), ended), "") << "the recorded result of " << ended;
      }
      std::vector<int> others = step.completes;
      if (step.expect != "waits") others.push_back(step.number);
      EXPECT_THAT(expected, ::testing::UnorderedElementsAreArray(others));
    }
    if (correction.empty() && model.deviates_later()) correction = "a failed call leaves no trace";
  }
  if (correction.empty()) {
    ++agreement.whole;
    for (const auto& [call, outcome] : scenario.results) EXPECT_EQ(player.DifferenceTo(outcome, call), "");
    return;
  }
  ++agreement.corrected[correction];
  EXPECT_TRUE(scenario.Has("poison") || scenario.Has("walk") || correction == "a failed call leaves no trace")
      << correction;
}

TEST_P(BatchingGolden, UnbatchGradAsRecordedAndCorrected) {
  Agreement agreement;
  const std::vector<Scenario> scenarios = Read("unbatch_grad.jsonl");
  for (const Scenario& scenario : scenarios) {
    SCOPED_TRACE(scenario.place);
    PlayAgainstModel(scenario, agreement);
  }
  std::cout << agreement.whole << " of " << scenarios.size() << " scenarios are as in TensorFlow in every step;\n";
  for (const auto& [correction, count] : agreement.corrected) std::cout << "  " << count << ": " << correction << "\n";
}

// Every later step of a scenario behaves as if the failed calls had never been made. There are two exceptions: a batch
// whose pieces do not fit is dropped, and a piece that an owner waits for is delivered all the same.
TEST_P(BatchingGolden, FailedCallsLeaveNoTrace) {
  int played = 0;
  for (const Scenario& scenario : Read("unbatch_grad.jsonl")) {
    SCOPED_TRACE(scenario.place);
    ScenarioPlayer with, without;
    std::set<int> failed;
    std::map<std::pair<std::string, std::string>, UnbatchGradModel> models;
    bool takes_along = false;
    for (const ScenarioStep& step : scenario.steps) {
      const UnbatchGradCall call = UnbatchGradCallOf(step);
      UnbatchGradModel& model = models[{call.resource.container, call.resource.name}];
      const int64_t pieces = model.pieces();
      const ModelEnds ends = model.Call(step.number, call);
      if (!ends.empty() && ends.back().call == step.number && ends.back().code != Code::kOk) {
        failed.insert(step.number);
        takes_along |= ends.size() > 1 || model.pieces() != pieces;
      }
    }
    if (failed.empty() || takes_along) continue;
    ++played;
    for (const ScenarioStep& step : scenario.steps) {
      with.Play(step);
      if (failed.contains(step.number)) {
        with.TakeNew();
        continue;
      }
      without.Play(step);
      EXPECT_EQ(with.TakeNew(), without.TakeNew()) << "call " << step.number;
      const Result<Outputs>* const expected = without.Find(step.number);
      ASSERT_EQ(expected == nullptr, with.Find(step.number) == nullptr);
      if (expected == nullptr) continue;
      ASSERT_EQ(with.Find(step.number)->ok(), expected->ok());
      if (expected->ok()) {
        const Tensor& got = (**with.Find(step.number))[0];
        EXPECT_EQ(DifferenceOrEmpty(got.view(), (**expected)[0].view()), "");
      }
    }
  }
  EXPECT_GT(played, 50);
}

// Checks the words of crashes.jsonl about one call.
void ExpectWanted(const std::string& words, int call, const std::map<int, int>& ended_at, ScenarioPlayer& player) {
  const Result<Outputs>* const result = player.Find(call);
  if (words.starts_with("keeps waiting") || words == "DEADLINE_EXCEEDED or CANCELLED") {
    EXPECT_EQ(result, nullptr);
    player.runtime().CloseAll();
    EXPECT_THAT(*player.Await(call), StatusIs(Code::kCancelled, ::testing::_));
    return;
  }
  ASSERT_NE(result, nullptr) << "still waits";
  const size_t by = words.find("completed by ");
  if (by != std::string::npos) {
    EXPECT_THAT(*result, IsOk());
    EXPECT_EQ(ended_at.at(call), std::stoi(words.substr(by + 13)));
  } else if (words == "ok" || words == "ok_empty") {
    ASSERT_THAT(*result, IsOk());
    EXPECT_EQ(ended_at.at(call), call);
    EXPECT_EQ((**result)[0].shape()[0] == 0, words == "ok_empty");
  } else {
    const std::string_view code = CodeName(result->status().code());
    EXPECT_NE(words.find(result->ok() ? "ok or" : code), std::string::npos) << code;
    if (words.find("(at once)") != std::string::npos) {
      EXPECT_EQ(ended_at.at(call), call);
    }
  }
}

// Entries without steps describe procedures, which other tests carry out: deadlines, closing and cancelling in
// batching_systematic_test, callbacks that call again and unclaimed pieces in batching_limits_test, failed calls above.
// Those about the graph optimizer do not concern a library.
TEST_P(BatchingGolden, ScriptsThatTensorFlowDoesNotSurvive) {
  int played = 0;
  for (const Scenario& scenario : Read("crashes.jsonl")) {
    if (scenario.steps.empty()) continue;
    SCOPED_TRACE(scenario.place);
    ++played;
    ScenarioPlayer player;
    std::map<int, int> ended_at;  // call -> step
    for (const ScenarioStep& step : scenario.steps) {
      player.Play(step);
      for (const int call : player.TakeNew()) ended_at.emplace(call, step.number);
    }
    for (const auto& [call, words] : scenario.wants) {
      SCOPED_TRACE("call " + std::to_string(call) + " wants " + words);
      ExpectWanted(words, call, ended_at, player);
    }
  }
  EXPECT_GE(played, 35);
}

}  // namespace
}  // namespace raggrad::testing
