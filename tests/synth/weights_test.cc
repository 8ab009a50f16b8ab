// Are the invented weights sane, and is expert use as skewed and as correlated as synth.h says? Routes are computed
// here from the written router and embedding rows alone, without the engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "support/test_data.h"
#include "synth/random.h"
#include "synth/raw_safetensors.h"
#include "synth/synth.h"

namespace deltafin {
namespace {

using test::RawSafetensors;

double RootMeanSquare(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// A nano-shaped checkpoint of four layers with one kind of routing, written once.
struct Model {
  explicit Model(SynthRouting routing) {
    Result<ModelSpec> made = MakeSynthSpec({.name = "nano", .layers = 4});
    EXPECT_TRUE(made);
    spec = *made;
    const SynthOptions options{.spec = spec, .seed = 5, .routing = routing, .folder = folder.path()};
    const Status status = Synthesize(options);
    EXPECT_TRUE(status) << status.error().message();
    embedding = Shard(5).Floats("language_model.model.embed_tokens.weight");
    for (int layer = 1; layer <= 3; ++layer) {
      const std::string prefix = "language_model.model.layers." + std::to_string(layer) + ".block_sparse_moe.gate.";
      const RawSafetensors shard = Shard(layer + 1);
      router.push_back(shard.Floats(prefix + "weight"));
      bias.push_back(shard.Floats(prefix + "e_score_correction_bias"));
    }
  }

  RawSafetensors Shard(int number) const {
    return RawSafetensors::Read(folder.path() + "/model-0000" + std::to_string(number) + "-of-000005.safetensors");
  }

  // What layer `layer`'s router chooses for the normalised embedding of `token`.
  std::set<size_t> Route(int layer, int64_t token) const {
    const auto h = static_cast<size_t>(spec.hidden_size), experts = static_cast<size_t>(spec.num_experts);
    const std::vector<float>& w = router[static_cast<size_t>(layer - 1)];
    const float* x = embedding.data() + static_cast<size_t>(token) * h;
    const double norm = RootMeanSquare({x, x + h});
    std::vector<double> score(experts);
    for (size_t e = 0; e < experts; ++e) {
      double logit = 0;
      for (size_t i = 0; i < h; ++i) logit += static_cast<double>(w[e * h + i]) * x[i];
      score[e] = 1 / (1 + std::exp(-logit / norm)) + bias[static_cast<size_t>(layer - 1)][e];
    }
    std::vector<size_t> order(experts);
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return score[a] > score[b]; });
    return {order.begin(), order.begin() + spec.num_experts_per_token};
  }

  // Share of the choices that the most used fifth of the experts gets, over random tokens.
  double ShareOfTopFifth(int layer) const {
    std::vector<size_t> use(static_cast<size_t>(spec.num_experts));
    Random random(99);
    size_t total = 0;
    for (int t = 0; t < 1500; ++t) {
      for (const size_t e : Route(layer, RandomToken(random))) ++use[e], ++total;
    }
    std::sort(use.rbegin(), use.rend());
    const size_t fifth = use.size() / 5;
    return static_cast<double>(std::accumulate(use.begin(), use.begin() + static_cast<long>(fifth), size_t{0})) /
           static_cast<double>(total);
  }

  int64_t RandomToken(Random& random) const {
    return static_cast<int64_t>(random.Next() % static_cast<uint64_t>(OrdinaryTokens(spec.vocab_size)));
  }

  // Mean share of choices that two routes have in common; `route` gives the two for a random token.
  template <typename Pair>
  double Overlap(Pair pair) const {
    Random random(7);
    size_t common = 0, total = 0;
    for (int t = 0; t < 400; ++t) {
      const auto [a, b] = pair(RandomToken(random), random);
      std::vector<size_t> both;
      std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
      common += both.size();
      total += a.size();
    }
    return static_cast<double>(common) / static_cast<double>(total);
  }

  ModelSpec spec;
  test::TempFolder folder;
  std::vector<float> embedding;
  std::vector<std::vector<float>> router, bias;  // of layers 1, 2, 3
};

const Model& Skewed() {
  static const Model model(SynthRouting::kSkewed);
  return model;
}

const Model& Uniform() {
  static const Model model(SynthRouting::kUniform);
  return model;
}

TEST(SynthWeights, MatricesKeepUnitInputsAtUnitSize) {
  const RawSafetensors shard = Skewed().Shard(2);
  size_t matrices = 0;
  for (const auto& [name, entry] : shard.header.items()) {
    const auto& shape = entry.at("shape");
    if (entry.at("dtype") != "BF16" || shape.size() != 2 || shape[0] == 1) continue;
    const double gain = RootMeanSquare(shard.Floats(name)) * std::sqrt(shape[1].get<double>());
    EXPECT_GT(gain, 0.4) << name;
    EXPECT_LT(gain, 1.4) << name;
    ++matrices;
  }
  EXPECT_EQ(matrices, 14u);  // eight of KDA, six of the mixture of experts
}

TEST(SynthWeights, ExpertsKeepUnitInputsAtUnitSizeAndScalesAreNumbers) {
  const RawSafetensors shard = Skewed().Shard(2);
  for (const std::string matrix : {"w1", "w2", "w3"}) {
    const std::string name = "language_model.model.layers.1.block_sparse_moe.experts.17." + matrix + ".";
    const std::string packed = shard.Bytes(name + "weight_packed"), scale = shard.Bytes(name + "weight_scale");
    const double columns = 2 * shard.header.at(name + "weight_packed").at("shape")[1].get<double>();
    std::vector<float> values;
    for (size_t i = 0; i < packed.size(); ++i) {
      const auto e = static_cast<uint8_t>(scale[i / 16]);
      ASSERT_GE(e, 127 - 9);
      ASSERT_LE(e, 127 - 1);
      const auto byte = static_cast<uint8_t>(packed[i]);
      for (const int nibble : {byte & 15, byte >> 4})
        values.push_back(E2M1ToFloat(static_cast<uint8_t>(nibble)) * E8M0ToFloat(e));
    }
    const double gain = RootMeanSquare(values) * std::sqrt(columns);
    EXPECT_GT(gain, 0.65) << matrix;
    EXPECT_LT(gain, 1.5) << matrix;
  }
}

TEST(SynthWeights, DecayRatesArePerHeadAndPaddedWithZeros) {
  const std::vector<float> rates = Skewed().Shard(1).Floats("language_model.model.layers.0.self_attn.A_log");
  ASSERT_EQ(rates.size(), 64u);  // head_dim
  EXPECT_EQ(std::count(rates.begin(), rates.begin() + 4, 0.0f), 0);
  EXPECT_EQ(std::count(rates.begin() + 4, rates.end(), 0.0f), 60);
}

TEST(SynthWeights, EmbeddingsHaveUnitSize) { EXPECT_NEAR(RootMeanSquare(Skewed().embedding), 1, 0.1); }

TEST(SynthRouting, AFifthOfTheExpertsGetsWellOverHalfOfTheUse) {
  for (int layer = 1; layer <= 3; ++layer) {
    const double share = Skewed().ShareOfTopFifth(layer);
    EXPECT_GT(share, 0.55) << layer;
    EXPECT_LT(share, 0.97) << layer;
  }
}

TEST(SynthRouting, UniformGivesNoSkew) {
  for (int layer = 1; layer <= 3; ++layer) EXPECT_LT(Uniform().ShareOfTopFifth(layer), 0.33) << layer;
}

TEST(SynthRouting, TokensOfOneClusterRouteAlike) {
  const auto neighbours = [](const Model& model) {
    return model.Overlap([&](int64_t token, Random&) {
      const int64_t next = WeightFiller(model.spec, 5, SynthRouting::kSkewed).NextToken(token);
      return std::pair(model.Route(2, token), model.Route(2, next));
    });
  };
  const auto strangers = [](const Model& model) {
    return model.Overlap([&](int64_t token, Random& random) {
      return std::pair(model.Route(2, token), model.Route(2, model.RandomToken(random)));
    });
  };
  EXPECT_GT(neighbours(Skewed()), strangers(Skewed()) + 0.1);
  EXPECT_GT(strangers(Skewed()), strangers(Uniform()) + 0.1);
}

TEST(SynthRouting, NeighbouringLayersRouteAlike) {
  const auto layers = [](const Model& model) {
    return model.Overlap(
        [&](int64_t token, Random&) { return std::pair(model.Route(1, token), model.Route(2, token)); });
  };
  EXPECT_GT(layers(Skewed()), layers(Uniform()) + 0.3);
}

TEST(SynthTokens, FormOneCycleOverAllOrdinaryIds) {
  const Model& model = Skewed();
  const WeightFiller filler(model.spec, 5, SynthRouting::kSkewed);
  std::set<int64_t> seen;
  int64_t token = 0;
  do {
    EXPECT_EQ(filler.PreviousToken(filler.NextToken(token)), token);
    seen.insert(token);
    token = filler.NextToken(token);
  } while (token != 0 && seen.size() < 10000);
  EXPECT_EQ(seen.size(), 7936u);  // the bundled model's rank file has as many ordinary ids
}

}  // namespace
}  // namespace deltafin
