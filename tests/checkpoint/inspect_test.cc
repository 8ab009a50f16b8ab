#include "checkpoint/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/micro_copy.h"

namespace deltafin {
namespace {

using test::MicroCopy;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

FolderReport Inspect(const std::string& folder) {
  const Result<FolderReport> report = InspectFolder(folder);
  EXPECT_TRUE(report) << report.error().message();
  return report ? *report : FolderReport();
}

TEST(Inspect, AWholeCheckpoint) {
  const FolderReport report = Inspect(test::RepoPath("models/k3-nano"));
  EXPECT_EQ(report.architecture, "KimiK3ForConditionalGeneration");
  ASSERT_TRUE(report.spec);
  EXPECT_EQ(report.spec->layers.size(), 9u);
  EXPECT_EQ(report.shards.size(), 10u);
  EXPECT_EQ(report.shards[0].bytes, 2315512u);
  EXPECT_EQ(report.shards[0].expected_bytes, 2315512u);
  EXPECT_EQ(report.text_tensors, 23 + 5 * 604 + 3 * 598 + 5);
  EXPECT_EQ(report.tensors_missing, 0);
  EXPECT_EQ(report.shards_missing, 0);
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_TRUE(report.weights_complete);
  EXPECT_TRUE(report.complete);
}

TEST(Inspect, WeightsWithoutATokenizerAreNotComplete) {
  const FolderReport report = Inspect(MicroCopy().folder());
  EXPECT_TRUE(report.weights_complete);
  EXPECT_FALSE(report.complete);
  EXPECT_FALSE(report.tokenizer_files[0].present);
}

TEST(Inspect, ReportsEverythingThatIsMissing) {
  MicroCopy copy;
  std::filesystem::remove(copy.shard(3));
  std::filesystem::remove(copy.shard(6));
  std::filesystem::resize_file(copy.shard(4), 300000);
  test::WriteBytes(copy.shard(5), "version https://git-lfs.github.com/spec/v1\n");
  const FolderReport report = Inspect(copy.folder());
  EXPECT_FALSE(report.weights_complete);
  EXPECT_EQ(report.shards_missing, 2);
  EXPECT_EQ(report.shards_damaged, 2);
  EXPECT_EQ(report.tensors_missing, 262 + 262 + 268);
  EXPECT_EQ(report.examples_missing.size(), 20u);
  EXPECT_FALSE(report.shards[2].present);
  EXPECT_EQ(report.shards[3].bytes, 300000u);
  EXPECT_EQ(report.shards[3].expected_bytes, 347560u);
  EXPECT_THAT(report.problems,
              ElementsAre(HasSubstr("model-00003-of-000007.safetensors: missing"), HasSubstr("truncated"),
                          HasSubstr("git-lfs pointer"), HasSubstr("model-00006-of-000007.safetensors: missing")));
}

TEST(Inspect, ListsUnknownTensorsAndDisagreements) {
  MicroCopy copy;
  copy.EditJson("model.safetensors.index.json", [](Json& index) {
    index["weight_map"]["language_model.extra"] = MicroCopy::ShardName(1);
    index["weight_map"]["language_model.model.norm.weight"] = MicroCopy::ShardName(1);
  });
  const FolderReport report = Inspect(copy.folder());
  EXPECT_THAT(report.problems, ElementsAre(HasSubstr("'language_model.extra'"), HasSubstr("model-00007")));
}

TEST(Inspect, VisionShardsAreListedAndNotNeeded) {
  MicroCopy copy;
  copy.EditJson("model.safetensors.index.json",
                [](Json& index) { index["weight_map"]["vision_tower.x"] = "vision.safetensors"; });
  const FolderReport report = Inspect(copy.folder());
  EXPECT_TRUE(report.weights_complete);
  ASSERT_EQ(report.shards.size(), 8u);
  EXPECT_FALSE(report.shards[7].has_text);
  EXPECT_FALSE(report.shards[7].present);
  EXPECT_EQ(report.shards_missing, 0);
}

TEST(Inspect, AnotherModelIsNamed) {
  MicroCopy copy;
  copy.EditJson("config.json", [](Json& config) {
    config["architectures"] = Json::array({"LlamaForCausalLM"});
    config["model_type"] = "llama";
  });
  const FolderReport report = Inspect(copy.folder());
  EXPECT_EQ(report.architecture, "LlamaForCausalLM");
  EXPECT_FALSE(report.spec);
  EXPECT_THAT(report.problems, ElementsAre(HasSubstr("model_type")));
}

TEST(Inspect, AnEmptyFolderLacksItsConfig) {
  const test::TempFolder folder;
  const FolderReport report = Inspect(folder.path());
  EXPECT_THAT(report.problems, ElementsAre(HasSubstr("config.json")));
  EXPECT_FALSE(report.complete);
}

TEST(Inspect, AFolderThatIsNotThereIsAnError) {
  EXPECT_EQ(InspectFolder("/no/such").error().code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace deltafin
