// The last positions that the model allows, against the reference (tests/data/long/k3-micro-far.golden, made by
// tools/reference/far_golden.py): the sequence begins in the middle, with a state that is made up number by number.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "support/engine_runs.h"
#include "support/golden_file.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

constexpr double kTolerance = 2e-5;
constexpr int64_t kLimit = 1048576;

// As made_up() of the script.
float MadeUp(int64_t row, int64_t column, int64_t salt) {
  auto h =
      static_cast<uint32_t>(static_cast<uint64_t>(row) * 0x9E3779B1u + static_cast<uint64_t>(column) * 0x85EBCA6Bu +
                            static_cast<uint64_t>(salt) * 0xC2B2AE35u);
  h = (h ^ (h >> 16)) * 0x7FEB352Du;
  h = (h ^ (h >> 15)) * 0x846CA68Bu;
  h ^= h >> 16;
  return static_cast<float>(h >> 8) * 0x1p-23f - 1;
}

// The micro model with the released model's limit of positions.
void MakeFarModel(const std::string& folder) {
  namespace fs = std::filesystem;
  for (const auto& entry : fs::directory_iterator(test::MicroFolder()))
    if (entry.path().filename() != "config.json")
      fs::create_symlink(entry.path(), fs::path(folder) / entry.path().filename());
  Result<Json> config = ReadJsonFile(test::MicroFolder() + "/config.json");
  ASSERT_TRUE(config);
  (*config)["text_config"]["max_position_embeddings"] = kLimit;
  std::ofstream(folder + "/config.json") << DumpJson(*config);
}

void FillState(const ModelSpec& spec, SequenceState& state, int64_t position) {
  ASSERT_TRUE(state.Prepare(position));
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const LayerSpec& layer = spec.layers[l];
    const auto salt = static_cast<int64_t>(l);
    if (layer.attention != AttentionKind::kKda) {
      for (int64_t done = 0; done < position;) {
        const Rows rows = state.NextMla(layer.mla_index, done, position - done).view();
        for (int64_t r = 0; r < rows.rows; ++r)
          for (int64_t c = 0; c < rows.width; ++c) rows.row(r)[c] = MadeUp(done + r, c, 100 + salt);
        done += rows.rows;
      }
      continue;
    }
    const SequenceState::KdaLayer next = state.NextKda(layer.kda_index);
    for (int64_t r = 0; r < spec.kda_width(); ++r)
      for (int64_t c = 0; c < spec.kda_head_dim; ++c)
        next.s_after[r * spec.kda_head_dim + c] = MadeUp(r, c, 200 + salt);
    int64_t which = 0;
    for (const Rows& tail : {next.q_tail.after, next.k_tail.after, next.v_tail.after}) {
      for (int64_t r = 0; r < tail.rows; ++r)
        for (int64_t c = 0; c < tail.width; ++c) tail.row(r)[c] = MadeUp(r, c, 300 + 3 * salt + which);
      ++which;
    }
  }
  state.Commit(position);
}

TEST(FarPosition, TheLastPositionsOfTheModelAgreeWithTheReference) {
  const test::GoldenFile golden(test::RepoPath("tests/data/long/k3-micro-far.golden"));
  const int64_t position = golden.Ints("position")[0];
  const test::TempFolder folder;
  MakeFarModel(folder.path());
  for (const int64_t chunk : {1, 6}) {
    test::OpenedEngine engine({.model = folder.path(), .context = kLimit, .chunk = chunk});
    ASSERT_TRUE(engine.ok()) << engine.error().message();
    const ModelSpec& spec = engine->spec();
    Result<SequenceState> state = SequenceState::Create(spec, kLimit);
    ASSERT_TRUE(state);
    FillState(spec, *state, position);
    Session session(std::move(*state));
    const std::vector<TokenId> ids(golden.Ints("prompt_ids").begin(), golden.Ints("prompt_ids").end());
    ASSERT_EQ(position + static_cast<int64_t>(ids.size()), kLimit) << "up to the very last one";
    const std::vector<float>& expected = golden.Floats("logits");
    std::vector<float> logits(expected.size());
    ASSERT_TRUE(engine->Feed(session, ids, Rows(logits.data(), static_cast<int64_t>(ids.size()), spec.vocab_size), {}));
    double difference = 0, norm = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      difference += std::pow(static_cast<double>(logits[i]) - expected[i], 2);
      norm += std::pow(static_cast<double>(expected[i]), 2);
    }
    EXPECT_LE(std::sqrt(difference / norm), kTolerance);

    const Status beyond = engine->Feed(session, {ids.data(), 1}, Rows(), {});
    ASSERT_FALSE(beyond);
    EXPECT_EQ(beyond.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(beyond.error().message().find(std::to_string(kLimit)), std::string::npos) << beyond.error().message();
  }
}

}  // namespace
}  // namespace deltafin
