// 400 tokens against the reference (tests/data/long, made by tools/reference/long_golden.py): routes and logits.
//
// Where the reference's own choice of an expert is closer than 1e-5, sums in another order may choose otherwise, and
// what follows is another text. Such places are counted; there the reference's routes are forced. Before the first of
// them the free run must agree too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "support/engine_runs.h"
#include "support/forwarding_backend.h"
#include "support/golden_file.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

constexpr double kTolerance = 2e-5;
constexpr float kClose = 1e-5f;

struct Case {
  std::string model;
  std::string device;
  std::string isa;
};

// One layer's routes of the whole sequence, as the reference chose.
struct LayerRoutes {
  const std::vector<int64_t>* ids = nullptr;  // [tokens, k], ascending inside a row
  const std::vector<float>* gaps = nullptr;   // [tokens]
};

// Of the two runs of a test, which differences there were.
struct RouteReport {
  int64_t first_other_row = INT64_MAX;
  int other = 0;           // rows of a layer with other experts than the reference's
  int other_although = 0;  // of them, where the reference's choice was not close
};

// Compares what the router chooses with the reference, layer after layer of one step, and may force it.
class ComparedRoutes final : public test::ForwardingBackend {
 public:
  ComparedRoutes(std::unique_ptr<Backend> to, std::vector<LayerRoutes> layers, bool force, RouteReport& report)
      : ForwardingBackend(std::move(to)), layers_(std::move(layers)), force_(force), report_(report) {}

  void Router(const RouterArgs& args) override {
    ForwardingBackend::Router(args);
    ASSERT_LT(next_, layers_.size());
    const LayerRoutes& expected = layers_[next_++];
    for (int64_t row = 0; row < args.x.rows; ++row) CompareRow(args, expected, row);
  }

 private:
  void CompareRow(const RouterArgs& args, const LayerRoutes& expected, int64_t row) {
    const auto at = static_cast<size_t>(row * args.top_k), k = static_cast<size_t>(args.top_k);
    const std::span<int32_t> ids = args.expert_ids.subspan(at, k);
    std::vector<int64_t> chosen(ids.begin(), ids.end());
    std::sort(chosen.begin(), chosen.end());
    const auto want = expected.ids->begin() + static_cast<std::ptrdiff_t>(at);
    if (std::equal(chosen.begin(), chosen.end(), want)) return;
    ++report_.other;
    report_.first_other_row = std::min(report_.first_other_row, row);
    if ((*expected.gaps)[static_cast<size_t>(row)] >= kClose) ++report_.other_although;
    if (!force_) return;
    float sum = 0;
    for (size_t j = 0; j < k; ++j) sum += args.scores.row(row)[want[static_cast<std::ptrdiff_t>(j)]];
    for (size_t j = 0; j < k; ++j) {
      ids[j] = static_cast<int32_t>(want[static_cast<std::ptrdiff_t>(j)]);
      args.expert_weights[at + j] = args.scores.row(row)[ids[j]] / (sum + 1e-20f) * args.scaling;
    }
  }

  const std::vector<LayerRoutes> layers_;
  const bool force_;
  RouteReport& report_;
  size_t next_ = 0;
};

class LongGolden : public testing::TestWithParam<Case> {
 protected:
  const test::GoldenFile golden_{test::RepoPath("tests/data/long/k3-" + GetParam().model + ".golden")};

  std::vector<LayerRoutes> Layers(int64_t layers) const {
    std::vector<LayerRoutes> routes;
    for (int64_t l = 0; l < layers; ++l) {
      const std::string name = "layers." + std::to_string(l) + ".route_";
      if (golden_.Has(name + "ids")) routes.push_back({&golden_.Ints(name + "ids"), &golden_.Floats(name + "gap")});
    }
    return routes;
  }

  // Logits of all rows.
  std::vector<float> Run(bool force, RouteReport* report, int64_t* vocab) {
    const Case& c = GetParam();
    const std::string folder = c.model == "nano" ? test::NanoFolder() : test::MicroFolder();
    constexpr int64_t kMostLayers = 64;
    test::OpenedEngine engine(
        {.model = folder, .device = c.device, .isa = c.isa}, {}, {}, [&](std::unique_ptr<Backend> backend) {
          return std::make_unique<ComparedRoutes>(std::move(backend), Layers(kMostLayers), force, *report);
        });
    if (!engine.ok()) return {};
    *vocab = engine->spec().vocab_size;
    const std::vector<int64_t>& ids = golden_.Ints("prompt_ids");
    Result<Session> session = engine->NewSession();
    if (!session) return {};
    Result<std::vector<float>> logits =
        test::AllLogits(*engine, *session, {ids.begin(), ids.end()}, {static_cast<int64_t>(ids.size())});
    return logits ? std::move(*logits) : std::vector<float>{};
  }

  // All rows below `end` whose logits the reference's file has, as one error; the measure of golden_test.cc.
  void ExpectRows(const std::vector<float>& logits, int64_t vocab, int64_t end) const {
    const std::vector<int64_t>& rows = golden_.Ints("rows");
    double difference = 0, norm = 0;
    for (size_t i = 0; i < rows.size() && rows[i] < end; ++i) {
      const float* expected = golden_.Floats("logits").data() + static_cast<int64_t>(i) * vocab;
      const float* got = logits.data() + rows[i] * vocab;
      for (int64_t v = 0; v < vocab; ++v) {
        difference += std::pow(static_cast<double>(got[v]) - expected[v], 2);
        norm += std::pow(static_cast<double>(expected[v]), 2);
      }
    }
    ASSERT_GT(norm, 0);
    EXPECT_LE(std::sqrt(difference / norm), kTolerance);
    std::printf("%s, rows below %lld: relative error %.2e\n", GetParam().model.c_str(),
                static_cast<long long>(std::min(end, rows.back() + 1)), std::sqrt(difference / norm));
  }
};

TEST_P(LongGolden, RoutesAndLogitsAgreeWithTheReference) {
  int close = 0;
  int64_t first_close = INT64_MAX;
  for (const LayerRoutes& layer : Layers(64)) {
    for (size_t row = 0; row < layer.gaps->size(); ++row) {
      if ((*layer.gaps)[row] >= kClose) continue;
      ++close;
      first_close = std::min(first_close, static_cast<int64_t>(row));
    }
  }
  ASSERT_EQ(golden_.Ints("prompt_ids").size(), 400u);
  EXPECT_LE(close, 5) << "too many for a check that says something";

  int64_t vocab = 0;
  RouteReport free, forced;
  const std::vector<float> free_logits = Run(false, &free, &vocab);
  ASSERT_FALSE(free_logits.empty());
  EXPECT_GE(free.first_other_row, first_close);
  ExpectRows(free_logits, vocab, free.first_other_row);
  const std::vector<float> logits = Run(true, &forced, &vocab);
  ASSERT_FALSE(logits.empty());
  EXPECT_EQ(forced.other_although, 0);
  EXPECT_LE(forced.other, close);
  ExpectRows(logits, vocab, INT64_MAX);
  RecordProperty("close", close);
  RecordProperty("forced", forced.other);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* model : {"micro", "nano"}) {
    cases.push_back({model, "reference", "auto"});
    for (const std::string& isa : test::UsableIsas()) cases.push_back({model, "cpu", isa});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, LongGolden, testing::ValuesIn(Cases()), [](const auto& info) {
  return info.param.model + "_" + info.param.device + "_" + info.param.isa;
});

}  // namespace
}  // namespace deltafin
