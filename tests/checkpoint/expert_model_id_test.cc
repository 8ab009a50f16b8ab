#include "checkpoint/expert_model_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/micro_copy.h"
#include "support/expert_set_builder.h"

namespace deltafin {
namespace {

using test::MicroCopy;
using ::testing::AllOf;
using ::testing::HasSubstr;

Result<uint64_t> IdOf(const MicroCopy& copy, ExpertsWanted experts = ExpertsWanted::kInShards) {
  CheckpointOptions options;
  options.folder = copy.folder();
  options.experts = experts;
  DFIN_TRY(const Checkpoint checkpoint, Checkpoint::Open(options));
  DFIN_TRY(auto engine, CreateIoEngine({"pread", 4}));
  IoScheduler io(std::move(engine), {.drives = checkpoint.drives()});
  return ExpertModelId(checkpoint, io);
}

// Where a router's bias begins in its shard.
uint64_t BiasAt(const MicroCopy& copy, int layer) {
  const test::ForeignHeader header = test::ReadForeignHeader(copy.shard(layer + 1));
  const std::string name = Cat("language_model.model.layers.", layer, ".block_sparse_moe.gate.e_score_correction_bias");
  return header.data_start + header.tensors.at(name)["data_offsets"][0].get<uint64_t>();
}

TEST(ExpertModelId, FollowsEveryBiasOfEveryRouterAndNothingElse) {
  MicroCopy copy;
  const uint64_t id = *IdOf(copy);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(*IdOf(MicroCopy()), id);
  EXPECT_EQ(*IdOf(copy, ExpertsWanted::kElsewhere), id);
  for (const int layer : {1, 3, 5}) {
    MicroCopy other;
    const uint64_t at = BiasAt(other, layer) + 17;
    const auto byte = static_cast<unsigned char>(test::ReadRange(other.shard(layer + 1), at, 1)[0]);
    other.Poke(MicroCopy::ShardName(layer + 1), at, static_cast<unsigned char>(byte ^ 1));
    EXPECT_NE(*IdOf(other), id) << layer;
  }
  // The last bytes of a shard are an expert's or another tensor's.
  copy.Poke(MicroCopy::ShardName(2), std::filesystem::file_size(copy.shard(2)) - 1, 3);
  EXPECT_EQ(*IdOf(copy), id);
}

TEST(ExpertModelId, StaysWhenTheHeaderMovesTheTensors) {
  MicroCopy copy;
  const uint64_t id = *IdOf(copy);
  copy.EditHeader(
      2, [](Json&) {}, 3);
  EXPECT_EQ(*IdOf(copy), id);
}

TEST(ExpertModelId, CannotBeToldWithoutAllShardsOfRouters) {
  MicroCopy copy;
  std::filesystem::remove(copy.shard(4));
  const Result<uint64_t> id = IdOf(copy, ExpertsWanted::kPartial);
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(id.error().message(), HasSubstr("layers.3.block_sparse_moe.gate.e_score_correction_bias"));
}

TEST(ExpertModelId, ASetOfAnotherModelIsRefused) {
  ExpertSetManifest manifest;
  manifest.model_id = 5;
  EXPECT_TRUE(CheckExpertModel(manifest, 5));
  const Status refused = CheckExpertModel(manifest, 6);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr("0000000000000005"), HasSubstr("0000000000000006"), HasSubstr("--model")));
  manifest.model_id = 0;
  EXPECT_THAT(CheckExpertModel(manifest, 6).error().message(), HasSubstr("pack"));
}

}  // namespace
}  // namespace deltafin
