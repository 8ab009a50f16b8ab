#include "checkpoint/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/expert_set.h"
#include "checkpoint/hex.h"
#include "checkpoint/micro_copy.h"
#include "support/expert_set_builder.h"

namespace deltafin {
namespace {

using test::MicroCopy;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

FolderReport Inspect(const std::string& folder, const ExpertFolders& experts = {}) {
  const Result<FolderReport> report = InspectFolder(folder, experts);
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

// A model of which `pack --move` moved every expert, 40 in each of 5 layers, to a set on two drives.
class MovedExperts : public ::testing::Test {
 protected:
  void Pack(const test::ExpertSetOptions& options = {}) {
    drives_ = test::DriveFolders(set_.path(), 2);
    test::BuildExpertSet(copy_.folder(), drives_, options);
    for (int number = 2; number <= 6; ++number) test::TakeExpertsOut(copy_, number, ToHex(options.set_id));
  }
  // As pack does.
  void NoteFolders(const std::string& state_folder = "") {
    const ExpertSetPointer pointer{0x5e7, drives_};
    EXPECT_TRUE(WriteExpertPointer(copy_.folder(), state_folder, pointer));
  }

  MicroCopy copy_;
  test::TempFolder set_;
  std::vector<std::string> drives_;
};

TEST_F(MovedExperts, AreThereWhenTheirSetIs) {
  Pack();
  NoteFolders();
  const FolderReport report = Inspect(copy_.folder());
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_TRUE(report.weights_complete);
  EXPECT_EQ(report.shards_moved, 5);
  EXPECT_EQ(report.shards[1].experts_moved_to, "00000000000005e7");
  EXPECT_EQ(report.shards[0].experts_moved_to, "");
  EXPECT_EQ(report.tensors_missing, 0);
  EXPECT_EQ(report.tensors_in_set, 5 * 40 * 6);
  ASSERT_TRUE(report.expert_set);
  EXPECT_EQ(report.expert_set->set_id, "00000000000005e7");
  EXPECT_EQ(report.expert_set->folders, drives_);
  EXPECT_EQ(report.expert_set->generation, 1u);
  EXPECT_EQ(report.expert_set->experts, 200);
  EXPECT_EQ(report.expert_set->experts_expected, 200);
  EXPECT_TRUE(report.expert_set->reachable);
  EXPECT_TRUE(report.expert_set->complete);
}

TEST_F(MovedExperts, AreFoundByOptionToo) {
  Pack();
  EXPECT_TRUE(Inspect(copy_.folder(), {.folders = drives_}).weights_complete);
}

TEST_F(MovedExperts, AreFoundThroughTheStateFolderToo) {
  Pack();
  const test::TempFolder state;
  // Pack notes the folders in the state folder when the model folder cannot be written. Root can write everywhere, so
  // the note is moved there; its name is only known to the code that writes it.
  const std::string moved = copy_.folder() + "-away";
  std::filesystem::rename(copy_.folder(), moved);
  const Result<std::string> note = WriteExpertPointer(copy_.folder(), state.path(), {0x5e7, drives_});
  std::filesystem::rename(moved, copy_.folder());
  ASSERT_TRUE(note) << note.error().message();
  ASSERT_TRUE(note->starts_with(state.path())) << *note;
  EXPECT_TRUE(Inspect(copy_.folder(), {.state_folder = state.path()}).weights_complete);
  EXPECT_FALSE(Inspect(copy_.folder()).weights_complete);
}

TEST_F(MovedExperts, OfASetThatNothingNamesAreMissing) {
  Pack();
  const FolderReport report = Inspect(copy_.folder());
  EXPECT_FALSE(report.weights_complete);
  EXPECT_EQ(report.tensors_missing, 5 * 40 * 6);
  ASSERT_TRUE(report.expert_set);
  EXPECT_EQ(report.expert_set->set_id, "00000000000005e7");
  EXPECT_THAT(report.expert_set->folders, IsEmpty());
  EXPECT_FALSE(report.expert_set->reachable);
  EXPECT_THAT(report.expert_set->problem, HasSubstr("--experts"));
  EXPECT_THAT(report.problems, ElementsAre(HasSubstr("moved the experts of 5 shards to expert set 00000000000005e7")));
}

TEST_F(MovedExperts, AreMissingWhenADriveOfTheirSetIs) {
  Pack();
  NoteFolders();
  std::filesystem::remove_all(drives_[1]);
  const FolderReport report = Inspect(copy_.folder());
  EXPECT_FALSE(report.weights_complete);
  ASSERT_TRUE(report.expert_set);
  EXPECT_FALSE(report.expert_set->reachable);
  EXPECT_FALSE(report.expert_set->complete);
  ASSERT_FALSE(report.problems.empty());
  EXPECT_THAT(report.problems[0], HasSubstr(drives_[1]));
}

TEST_F(MovedExperts, OfADriveWithSecondCopiesElsewhereAreThere) {
  Pack({.replicas = 1});
  NoteFolders();
  std::filesystem::remove_all(drives_[1]);
  const FolderReport report = Inspect(copy_.folder());
  EXPECT_THAT(report.problems, IsEmpty());
  ASSERT_TRUE(report.expert_set);
  EXPECT_TRUE(report.expert_set->complete);
  EXPECT_THAT(report.expert_set->warnings, testing::Contains(HasSubstr(drives_[1])));
}

TEST_F(MovedExperts, ASetWithoutSomeOfThemIsReachableAndNotComplete) {
  Pack({.leave_out = 3});
  NoteFolders();
  const FolderReport report = Inspect(copy_.folder());
  EXPECT_FALSE(report.weights_complete);
  ASSERT_TRUE(report.expert_set);
  EXPECT_TRUE(report.expert_set->reachable);
  EXPECT_FALSE(report.expert_set->complete);
  EXPECT_THAT(report.expert_set->problem, HasSubstr("expected 200 experts, got 197"));
}

TEST_F(MovedExperts, AShardOfNothingElseIsNotNeeded) {
  Pack();
  NoteFolders();
  copy_.EditJson("model.safetensors.index.json", [](Json& index) {
    for (auto& [name, shard] : index["weight_map"].items())
      if (name.find("layers.2.block_sparse_moe.experts.") != std::string::npos) shard = "experts.safetensors";
  });
  const FolderReport report = Inspect(copy_.folder());
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_EQ(report.shards_missing, 0);
  ASSERT_EQ(report.shards[0].name, "experts.safetensors");
  EXPECT_TRUE(report.shards[0].has_text);
  EXPECT_FALSE(report.shards[0].needed);
  EXPECT_EQ(report.shards[0].problem, "");
}

TEST(Inspect, ANotedSetThatIsGoneIsAProblemThoughTheShardsAreWhole) {
  MicroCopy copy;
  ASSERT_TRUE(WriteExpertPointer(copy.folder(), "", {0x5e7, {"/no/such/drive"}}));
  const FolderReport report = Inspect(copy.folder());
  EXPECT_FALSE(report.weights_complete) << "a run would be refused";
  EXPECT_THAT(report.problems, ElementsAre(HasSubstr("/no/such/drive")));
}

TEST(Inspect, AFolderThatIsNotThereIsAnError) {
  EXPECT_EQ(InspectFolder("/no/such").error().code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace deltafin
