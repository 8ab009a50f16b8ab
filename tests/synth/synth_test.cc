#include "synth/synth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/json.h"
#include "support/checkpoint_builder.h"
#include "support/test_data.h"
#include "synth/raw_safetensors.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;
using test::RawSafetensors;
using ::testing::HasSubstr;

std::map<std::string, std::string> FilesOf(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename().string()] = std::string((std::istreambuf_iterator<char>(file)), {});
  }
  return files;
}

SynthOptions TinyOptions(const std::string& folder) {
  SynthOptions options;
  options.spec = test::TinySpec();
  options.seed = 1;
  options.folder = folder;
  return options;
}

TEST(Synthesize, WritesTheFilesOfARelease) {
  const test::TempFolder folder;
  test::BuildTinyCheckpoint(folder.path());
  std::set<std::string> names;
  for (const auto& [name, bytes] : FilesOf(folder.path())) names.insert(name);
  EXPECT_EQ(names, (std::set<std::string>{"config.json", "generation_config.json", "model.safetensors.index.json",
                                          "model-00001-of-000006.safetensors", "model-00002-of-000006.safetensors",
                                          "model-00003-of-000006.safetensors", "model-00004-of-000006.safetensors",
                                          "model-00005-of-000006.safetensors", "model-00006-of-000006.safetensors"}));
}

// The bundled model was not written by this code: same dimensions must give the same shards, tensor by tensor.
TEST(Synthesize, LaysOutTheNanoShapeExactlyAsTheBundledModel) {
  const test::TempFolder folder;
  SynthOptions options;
  const Result<ModelSpec> spec = MakeSynthSpec({.name = "nano"});
  ASSERT_TRUE(spec);
  options.spec = *spec;
  options.folder = folder.path();
  ASSERT_TRUE(Synthesize(options));
  for (int shard = 1; shard <= 10; ++shard) {
    char name[64];
    std::snprintf(name, sizeof name, "/model-%05d-of-000010.safetensors", shard);
    const RawSafetensors made = RawSafetensors::Read(folder.path() + name);
    const RawSafetensors real = RawSafetensors::Read(test::RepoPath("models/k3-nano") + name);
    EXPECT_EQ(made.header.dump(), real.header.dump()) << name;
    EXPECT_EQ(made.data.size(), real.data.size()) << name;
  }
  const Result<Json> made = ReadJsonFile(folder.path() + "/model.safetensors.index.json");
  const Result<Json> real = ReadJsonFile(test::RepoPath("models/k3-nano/model.safetensors.index.json"));
  ASSERT_TRUE(made && real);
  EXPECT_EQ(nlohmann::json(*made), nlohmann::json(*real));
}

TEST(Synthesize, GivesTheSameBytesForTheSameSeedAndAnyThreadCount) {
  const test::TempFolder one, two;
  SynthOptions options = TinyOptions(one.path());
  ASSERT_TRUE(Synthesize(options));
  options.folder = two.path();
  options.threads = 3;
  ASSERT_TRUE(Synthesize(options));
  EXPECT_EQ(FilesOf(one.path()), FilesOf(two.path()));
}

TEST(Synthesize, GivesOtherWeightsInEveryShardForAnotherSeed) {
  const test::TempFolder one, two;
  test::BuildTinyCheckpoint(one.path(), {.seed = 1});
  test::BuildTinyCheckpoint(two.path(), {.seed = 2});
  const auto a = FilesOf(one.path()), b = FilesOf(two.path());
  for (const auto& [name, bytes] : a) {
    if (name.ends_with(".safetensors")) {
      EXPECT_NE(bytes, b.at(name)) << name;
    }
  }
}

TEST(Synthesize, MakesEveryExpertMatrixDifferent) {
  const test::TempFolder folder;
  test::BuildTinyCheckpoint(folder.path());
  std::set<std::string> seen;
  size_t matrices = 0;
  for (int shard = 2; shard <= 5; ++shard) {
    const RawSafetensors raw =
        RawSafetensors::Read(folder.path() + "/model-0000" + std::to_string(shard) + "-of-000006.safetensors");
    for (const auto& [name, entry] : raw.header.items()) {
      if (!name.ends_with("weight_packed")) continue;
      seen.insert(raw.Bytes(name));
      ++matrices;
    }
  }
  EXPECT_EQ(matrices, 4u * 10 * 3);
  EXPECT_EQ(seen.size(), matrices);
}

TEST(Synthesize, PlansTheBytesItWrites) {
  const test::TempFolder folder;
  test::BuildTinyCheckpoint(folder.path());
  uint64_t written = 0;
  for (const auto& [name, bytes] : FilesOf(folder.path()))
    if (name.ends_with(".safetensors")) written += bytes.size();
  EXPECT_EQ(PlanSynth(test::TinySpec()).file_bytes, written);
}

TEST(Synthesize, ReportsProgressUpToTheEnd) {
  const test::TempFolder folder;
  SynthProgress last;
  ASSERT_TRUE(Synthesize(TinyOptions(folder.path()), [&](const SynthProgress& progress) {
    EXPECT_GE(progress.bytes_done, last.bytes_done);
    last = progress;
  }));
  const SynthPlan plan = PlanSynth(test::TinySpec());
  EXPECT_EQ(last.bytes_done, plan.dense_bytes + plan.expert_bytes);
  EXPECT_EQ(last.bytes_done, last.bytes_total);
  EXPECT_EQ(last.shard, 6);
}

TEST(Synthesize, RefusesAFolderWithFilesAndLeavesItAlone) {
  const test::TempFolder folder;
  std::ofstream(folder.path() + "/mine.txt") << "mine";
  const Status status = Synthesize(TinyOptions(folder.path()));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(status.error().message(), HasSubstr("expected an empty folder"));
  EXPECT_EQ(FilesOf(folder.path()), (std::map<std::string, std::string>{{"mine.txt", "mine"}}));
}

// An embedding of 35 PB.
TEST(Synthesize, RefusesWhatDoesNotFitTheDriveBeforeWriting) {
  const test::TempFolder parent;
  SynthOptions options = TinyOptions(parent.path() + "/model");
  options.spec.hidden_size = int64_t{1} << 20;
  options.spec.vocab_size = int64_t{1} << 24;
  const Status status = Synthesize(options);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(status.error().message(), HasSubstr("bytes) of free space, got"));
  EXPECT_FALSE(fs::exists(options.folder));
}

TEST(Synthesize, LeavesNothingBehindWhenCancelled) {
  const test::TempFolder parent;
  SynthOptions options = TinyOptions(parent.path() + "/model");
  CancelSource source;
  source.Cancel();
  const Status status = Synthesize(options, {}, source.token());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kCancelled);
  EXPECT_TRUE(fs::is_empty(parent.path()));
}

TEST(Synthesize, ReportsAFolderThatCannotBeMade) {
  const test::TempFolder parent;
  std::ofstream(parent.path() + "/file") << "x";
  const Status status = Synthesize(TinyOptions(parent.path() + "/file/model"));
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("/file/model"));
}

}  // namespace
}  // namespace deltafin
