// The forward pass against the reference's recorded values (expected.golden, expected_greedy.json of the two
// checkpoints; computed by the PyTorch reference, see tests/data/README.md): every tap, the state, the logits, and the
// greedy answers.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "app/tap_recorder.h"
#include "base/json.h"
#include "engine/generation.h"
#include "support/engine_runs.h"
#include "support/golden_file.h"

namespace deltafin {
namespace {

constexpr double kTapTolerance = 1e-5;
constexpr double kLogitsTolerance = 2e-5;

struct Case {
  std::string folder;
  std::string device;
  std::string isa;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string& folder : {test::MicroFolder(), test::NanoFolder()}) {
    cases.push_back({folder, "reference", "auto"});
    for (const std::string& isa : test::UsableIsas()) cases.push_back({folder, "cpu", isa});
  }
  return cases;
}

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return c.folder.substr(c.folder.rfind('-') + 1) + "_" + c.device + (c.device == "cpu" ? "_" + c.isa : "");
}

double RelativeError(std::span<const float> got, std::span<const float> expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = static_cast<double>(got[i]) - expected[i];
    difference += d * d;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  return std::sqrt(difference / norm);
}

class Golden : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    engine_ = std::make_unique<test::OpenedEngine>(EngineOptions{.model = c.folder, .device = c.device, .isa = c.isa});
    ASSERT_TRUE(engine_->ok()) << engine_->error().message();
  }
  Engine& engine() { return **engine_; }

  std::unique_ptr<test::OpenedEngine> engine_;
};

void ExpectClose(const test::GoldenFile& golden, const std::string& name, std::span<const float> got,
                 double tolerance) {
  const std::vector<float>& expected = golden.Floats(name);
  ASSERT_EQ(got.size(), expected.size()) << name;
  EXPECT_LE(RelativeError(got, expected), tolerance) << name;
}

std::vector<TokenId> Tokens(const std::vector<int64_t>& ids) { return {ids.begin(), ids.end()}; }

void ExpectState(const test::GoldenFile& golden, const ModelSpec& spec, const SequenceState& state) {
  int compared = 0;
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const std::string n = std::to_string(l);
    if (golden.Has("state.kda." + n)) {
      ++compared;
      const auto size = static_cast<size_t>(spec.kda_heads * spec.kda_head_dim * spec.kda_head_dim);
      ExpectClose(golden, "state.kda." + n, {state.CurrentS(spec.layers[l].kda_index), size}, kTapTolerance);
    }
    if (golden.Has("state.latent." + n)) {
      ++compared;
      const PagedRows rows = state.CurrentMla(spec.layers[l].mla_index);
      std::vector<float> latent, rope;
      for (int64_t r = 0; r < rows.rows; ++r) {
        latent.insert(latent.end(), rows.row(r), rows.row(r) + spec.kv_lora_rank);
        rope.insert(rope.end(), rows.row(r) + spec.kv_lora_rank, rows.row(r) + rows.width);
      }
      ExpectClose(golden, "state.latent." + n, latent, kTapTolerance);
      ExpectClose(golden, "state.rope_key." + n, rope, kTapTolerance);
    }
  }
  EXPECT_GE(compared, 4);  // the files hold two KDA layers and two MLA layers
}

TEST_P(Golden, EveryTapStateAndLogitAgreesWithTheReference) {
  const test::GoldenFile golden(GetParam().folder + "/expected.golden");
  const int64_t vocab = engine().spec().vocab_size;
  Result<Session> session = engine().NewSession();
  ASSERT_TRUE(session);
  TapRecorder taps;
  const auto feed = [&](const char* ids_name, const char* logits_name, ActivationTap* tap) {
    const std::vector<TokenId> ids = Tokens(golden.Ints(ids_name));
    std::vector<float> logits(ids.size() * static_cast<size_t>(vocab));
    ASSERT_TRUE(engine().Feed(*session, ids, Rows(logits.data(), static_cast<int64_t>(ids.size()), vocab), {}, tap));
    ExpectClose(golden, logits_name, logits, kLogitsTolerance);
  };
  feed("prompt_ids", "logits", &taps);
  feed("next_ids", "next_logits", nullptr);

  int compared = 0;
  for (const std::string& name : golden.Names()) {
    if (name == "embedding" || name == "final_norm" || name.rfind("layers.", 0) == 0) {
      ++compared;
      if (name.find("route_ids") != std::string::npos) {
        ASSERT_TRUE(taps.ids().contains(name)) << name;
        EXPECT_EQ(taps.ids().at(name).values, golden.Ints(name)) << name;
      } else {
        ASSERT_TRUE(taps.floats().contains(name)) << name;
        ExpectClose(golden, name, taps.floats().at(name).values, kTapTolerance);
      }
    }
  }
  // Three rows of taps a layer, routes of all layers but the dense first one, embedding and final_norm.
  const auto layers = static_cast<int>(engine().spec().layers.size());
  EXPECT_EQ(compared, 3 * layers + 2 * (layers - 1) + 2);
  ExpectState(golden, engine().spec(), session->state());
}

TEST_P(Golden, GreedyAnswersAreIdEqual) {
  const Result<Json> file = ReadJsonFile(GetParam().folder + "/expected_greedy.json");
  ASSERT_TRUE(file);
  const Json cases = file->is_array() ? *file : Json::array({*file});
  ASSERT_FALSE(cases.empty());
  for (const Json& c : cases) {
    const auto prompt = c["prompt_ids"].get<std::vector<TokenId>>();
    const auto expected = c["new_ids"].get<std::vector<TokenId>>();
    Result<Session> session = engine().NewSession();
    ASSERT_TRUE(session);
    GenerationRequest request;
    request.prompt = prompt;
    request.max_new = static_cast<int64_t>(expected.size());
    const Result<GenerationResult> result = Generate(engine(), *session, engine_->monitor(), request);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->tokens, expected) << "prompt of " << prompt.size() << " tokens, \"" << c.value("prompt", "")
                                        << c.value("user", "") << "\"";
  }
}

INSTANTIATE_TEST_SUITE_P(All, Golden, testing::ValuesIn(Cases()), CaseName);

}  // namespace
}  // namespace deltafin
