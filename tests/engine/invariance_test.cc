// The promise of the engine: a token's logits are a pure function of its prefix. One set of tokens, many ways to
// compute it, compared byte for byte with one plain run on the same backend and instruction set.
//
// Later work adds rows to Variations(): drives, layouts, drafts, saved sessions.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/bytes.h"
#include "base/platform.h"
#include "model/activations.h"
#include "support/engine_runs.h"
#include "support/fake_io_engine.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

// More than two blocks of MLA keys and two passes of the CPU kernels (64 each); sanitizers take ten times as long.
constexpr int64_t kTokens = kIsSanitized ? 72 : 136;

struct Variation {
  std::string name;
  EngineOptions options = {};  // model, device and isa are filled in
  std::vector<int64_t> pieces = {kTokens};
  uint64_t random_io = 0;    // seed of a fake I/O engine, 0 = a real one
  int cache_experts = 0;     // expert slots, 0 = all
  bool keeps_state = false;  // a run before this one has left its usage counts
};

std::vector<int64_t> RandomPieces(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> pieces;
  for (int64_t sum = 0; sum < kTokens; sum += pieces.back()) pieces.push_back(1 + static_cast<int64_t>(random() % 11));
  return pieces;
}

std::vector<Variation> Variations() {
  std::vector<Variation> v;
  v.push_back({.name = "SameAgain"});
  for (const int slots : {1, 2, 3, 5, 8, 16, 40}) {
    v.push_back({.name = "CacheFloorPlus" + std::to_string(slots - 1), .cache_experts = slots});
    v.push_back(
        {.name = "CacheFloorPlus" + std::to_string(slots - 1) + "OneByOne", .pieces = {1}, .cache_experts = slots});
  }
  // Above, experts are prefetched where a cache is larger than the floor.
  for (const int slots : {5, 40})
    v.push_back({.name = "NoPrefetchCacheFloorPlus" + std::to_string(slots - 1),
                 .options = {.prefetch = false},
                 .pieces = {1},
                 .cache_experts = slots});
  for (uint64_t seed = 1; seed <= 2; ++seed)
    v.push_back({.name = "PrefetchRandomCompletions" + std::to_string(seed),
                 .pieces = {1, 2, 1, 4, 1},
                 .random_io = seed + 10,
                 .cache_experts = 24});
  for (const int slots : {5, 40, 0})
    v.push_back({.name = "WarmStart" + std::to_string(slots),
                 .options = {.warm_start = true},
                 .pieces = {3, 1},
                 .cache_experts = slots,
                 .keeps_state = true});
  v.push_back({.name = "WarmStartRandomCompletions",
               .options = {.warm_start = true},
               .pieces = {2, 1},
               .random_io = 31,
               .cache_experts = 24,
               .keeps_state = true});
  for (const int threads : {1, 2, 3, 4})
    v.push_back({.name = "Threads" + std::to_string(threads), .options = {.threads = threads}, .pieces = {7}});
  v.push_back({.name = "OneByOne", .pieces = {1}});
  v.push_back({.name = "PromptThenOneByOne", .pieces = {kTokens / 2, 1}});
  for (uint32_t seed = 1; seed <= 6; ++seed)
    v.push_back({.name = "RandomPieces" + std::to_string(seed), .pieces = RandomPieces(seed)});
  for (const int64_t chunk : {1, 2, 5, 16, 63, 64, 65, 135})
    v.push_back({.name = "Chunk" + std::to_string(chunk), .options = {.chunk = chunk}});
  for (const char* io : {"uring", "pread"})
    v.push_back({.name = std::string("Io_") + io, .options = {.io = io}, .pieces = {3}, .cache_experts = 2});
  for (int seed = 1; seed <= 4; ++seed)
    v.push_back({.name = "RandomCompletions" + std::to_string(seed),
                 .pieces = RandomPieces(static_cast<uint32_t>(seed + 50)),
                 .random_io = static_cast<uint64_t>(seed),
                 .cache_experts = seed});
  v.push_back({.name = "DenseResident", .options = {.dense_mode = DenseMode::kResident}, .pieces = {5}});
  v.push_back({.name = "DenseStreamed", .options = {.dense_mode = DenseMode::kStream}, .pieces = {5}});
  v.push_back({.name = "DenseStreamedRandomCompletions",
               .options = {.dense_mode = DenseMode::kStream},
               .pieces = {9},
               .random_io = 77,
               .cache_experts = 4});
  v.push_back({.name = "ShortContext", .options = {.context = kTokens}});
  return v;
}

std::vector<TokenId> RandomTokens(int64_t vocab) {
  std::mt19937 random(20261130);
  std::vector<TokenId> tokens(kTokens);
  for (TokenId& t : tokens) t = static_cast<TokenId>(random() % static_cast<uint32_t>(vocab));
  return tokens;
}

Result<std::vector<float>> Logits(const std::string& folder, const std::string& device, const std::string& isa,
                                  const Variation& v) {
  EngineOptions options = v.options;
  options.model = folder;
  options.device = device;
  options.isa = isa;
  if (v.cache_experts != 0) {
    // The floor is a token's experts; slot size and floor are what a first engine says.
    test::OpenedEngine probe(options);
    if (!probe.ok()) return Failure(probe.error());
    const uint64_t slot = probe->plan().rows[3].bytes / static_cast<uint64_t>(probe->plan().expert_slots);
    options.expert_cache = slot * static_cast<uint64_t>(probe->spec().num_experts_per_token + v.cache_experts - 1);
  }
  const test::TempFolder state;
  if (v.keeps_state) {
    options.state_dir = state.path();
    test::OpenedEngine earlier(options);
    if (!earlier.ok()) return Failure(earlier.error());
    DFIN_TRY(Session session, earlier->NewSession());
    DFIN_TRY_VOID(test::AllLogits(*earlier, session, RandomTokens(earlier->spec().vocab_size), v.pieces));
  }
  test::OpenedEngine::IoFactory io;
  if (v.random_io != 0) {
    io = [&]() -> Result<std::unique_ptr<IoEngine>> {
      return std::make_unique<test::FakeIoEngine>(test::FakeIoOptions{.seed = v.random_io, .max_delay_us = 300});
    };
  }
  test::OpenedEngine engine(options, io);
  if (!engine.ok()) return Failure(engine.error());
  DFIN_TRY(Session session, engine->NewSession());
  return test::AllLogits(*engine, session, RandomTokens(engine->spec().vocab_size), v.pieces);
}

struct Where {
  std::string model;
  std::string device;
  std::string isa;
};

class Invariance : public testing::TestWithParam<std::tuple<Where, Variation>> {};

TEST_P(Invariance, LogitsAreTheSameBytes) {
  const auto& [where, variation] = GetParam();
  const std::string folder = where.model == "micro" ? test::MicroFolder() : test::NanoFolder();
  // The plain run of each place is computed once.
  static std::map<std::string, std::vector<float>> plain_runs;
  const std::string key = where.model + where.device + where.isa;
  if (!plain_runs.contains(key)) {
    Result<std::vector<float>> plain = Logits(folder, where.device, where.isa, Variation{.name = "Plain"});
    ASSERT_TRUE(plain) << plain.error().message();
    plain_runs[key] = std::move(*plain);
  }
  const std::vector<float>& plain = plain_runs[key];
  const Result<std::vector<float>> varied = Logits(folder, where.device, where.isa, variation);
  ASSERT_TRUE(varied) << varied.error().message();
  ASSERT_EQ(varied->size(), plain.size());
  const auto vocab = static_cast<int64_t>(plain.size()) / kTokens;
  for (int64_t row = 0; row < kTokens; ++row)
    ASSERT_EQ(std::memcmp(varied->data() + row * vocab, plain.data() + row * vocab,
                          static_cast<size_t>(vocab) * sizeof(float)),
              0)
        << "row " << row;
}

std::vector<Where> Places() {
  std::vector<Where> places = {{"micro", "reference", "auto"}};
  for (const std::string& isa : test::UsableIsas()) {
    places.push_back({"micro", "cpu", isa});
    places.push_back({"nano", "cpu", isa});
  }
  return places;
}

// One of each model, for what takes long.
std::vector<Where> FewPlaces() { return {{"micro", "cpu", "auto"}, {"nano", "cpu", "auto"}}; }

INSTANTIATE_TEST_SUITE_P(All, Invariance,
                         testing::Combine(testing::ValuesIn(Places()), testing::ValuesIn(Variations())),
                         [](const testing::TestParamInfo<std::tuple<Where, Variation>>& info) {
                           const Where& w = std::get<0>(info.param);
                           return w.model + "_" + w.device + "_" + w.isa + "_" + std::get<1>(info.param).name;
                         });

// A step of more rows than its values are held for at once: a few heads at a time, experts added as they come.
class LongSteps : public testing::TestWithParam<Where> {};

TEST_P(LongSteps, LogitsAreThoseOfShortOnes) {
  constexpr int64_t kRows = 3 * Activations::kRowsAtOnce + 7;
  const Where& where = GetParam();
  EngineOptions options;
  options.model = where.model == "micro" ? test::MicroFolder() : test::NanoFolder();
  options.device = where.device;
  options.isa = where.isa;
  std::vector<std::vector<float>> last_rows;
  for (const int64_t chunk : {int64_t{100}, Activations::kRowsAtOnce + 100, kRows}) {
    options.chunk = chunk;
    test::OpenedEngine engine(options);
    ASSERT_TRUE(engine.ok()) << engine.error().message();
    Result<Session> session = engine->NewSession();
    ASSERT_TRUE(session);
    std::mt19937 random(7);
    std::vector<TokenId> tokens(kRows);
    for (TokenId& t : tokens) t = static_cast<TokenId>(random() % static_cast<uint32_t>(engine->spec().vocab_size));
    // The last rows, and one more token from the state that they leave.
    const int64_t vocab = engine->spec().vocab_size;
    std::vector<float>& logits = last_rows.emplace_back(static_cast<size_t>(4 * vocab));
    ASSERT_TRUE(engine->Feed(*session, tokens, Rows(logits.data(), 3, vocab), {}));
    ASSERT_TRUE(engine->Feed(*session, {tokens.data(), 1}, Rows(logits.data() + 3 * vocab, 1, vocab), {}));
    EXPECT_EQ(engine->counters().layer_passes,
              engine->spec().layers.size() * static_cast<uint64_t>(CeilDiv(kRows, chunk) + 1));
  }
  for (const std::vector<float>& rows : last_rows)
    EXPECT_EQ(std::memcmp(rows.data(), last_rows[0].data(), rows.size() * sizeof(float)), 0);
}

INSTANTIATE_TEST_SUITE_P(All, LongSteps, testing::ValuesIn(kIsSanitized ? FewPlaces() : Places()),
                         [](const auto& info) {
                           return info.param.model + "_" + info.param.device + "_" + info.param.isa;
                         });

// Latents in BF16 are other numbers, but the same ones however a text is cut.
TEST(Bf16Latents, ChangeLogitsALittleAndNotWithTheCut) {
  for (const std::string& folder : {test::MicroFolder(), test::NanoFolder()}) {
    std::vector<float> logits[3];
    const Variation runs[] = {{.name = "F32"},
                              {.name = "Bf16", .options = {.kv_dtype = DType::kBF16}},
                              {.name = "Bf16InPieces", .options = {.kv_dtype = DType::kBF16}, .pieces = {40, 1}}};
    for (size_t i = 0; i < 3; ++i) {
      Result<std::vector<float>> run = Logits(folder, "cpu", "auto", runs[i]);
      ASSERT_TRUE(run) << run.error().message();
      logits[i] = std::move(*run);
    }
    EXPECT_EQ(std::memcmp(logits[1].data(), logits[2].data(), logits[1].size() * sizeof(float)), 0);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < logits[0].size(); ++i) {
      difference += std::pow(static_cast<double>(logits[1][i]) - logits[0][i], 2);
      norm += std::pow(static_cast<double>(logits[0][i]), 2);
    }
    EXPECT_GT(difference, 0);
    // A value is off by at most 2^-9 of itself; what the layers after it make of that is measured, with room.
    EXPECT_LE(std::sqrt(difference / norm), 0.1) << folder;
  }
}

// The comparison above can fail: another order of the same tokens gives other bytes.
TEST(InvarianceCheck, DifferentPrefixesGiveDifferentLogits) {
  test::OpenedEngine engine({.model = test::MicroFolder()});
  ASSERT_TRUE(engine.ok());
  std::vector<TokenId> tokens = RandomTokens(engine->spec().vocab_size);
  Result<Session> one = engine->NewSession();
  Result<Session> two = engine->NewSession();
  ASSERT_TRUE(one && two);
  const auto a = test::AllLogits(*engine, *one, tokens, {kTokens});
  std::swap(tokens[0], tokens[1]);
  const auto b = test::AllLogits(*engine, *two, tokens, {kTokens});
  ASSERT_TRUE(a && b);
  const size_t vocab = a->size() / kTokens;
  EXPECT_NE(std::memcmp(a->data() + (kTokens - 1) * vocab, b->data() + (kTokens - 1) * vocab, vocab * sizeof(float)),
            0);
}

}  // namespace
}  // namespace deltafin
