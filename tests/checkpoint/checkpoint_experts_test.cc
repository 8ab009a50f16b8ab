// Checkpoints whose routed experts are elsewhere, were moved, or are not all downloaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/hex.h"
#include "checkpoint/inspect.h"
#include "checkpoint/micro_copy.h"
#include "spec/tensor_table.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

using test::MicroCopy;
using test::TakeExpertsOut;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kIndex = "model.safetensors.index.json";

Result<Checkpoint> Open(const MicroCopy& copy, ExpertsWanted experts, const std::string& cache = "") {
  CheckpointOptions options;
  options.folder = copy.folder();
  options.index_cache_folder = cache;
  options.experts = experts;
  return Checkpoint::Open(options);
}

std::string Message(const Result<Checkpoint>& opened) { return opened ? "opened" : opened.error().message(); }

bool IsExpert(const std::string& name) { return name.find(".experts.") != std::string::npos; }

TEST(ExpertsElsewhere, AWholeCheckpointOpensWithThemToo) {
  const MicroCopy copy;
  const Result<Checkpoint> opened = Open(copy, ExpertsWanted::kElsewhere);
  ASSERT_TRUE(opened) << Message(opened);
  EXPECT_TRUE(opened->has_expert({1, 0}));
  EXPECT_EQ(opened->fingerprint(), Open(copy, ExpertsWanted::kInShards)->fingerprint());
}

TEST(ExpertsElsewhere, MovedExpertsAreNotMissedAndTheFingerprintStays) {
  MicroCopy copy;
  const uint64_t before = copy.Open()->fingerprint();
  for (const int number : {3, 4}) TakeExpertsOut(copy, number, ToHex(0x5e7));
  const Result<Checkpoint> opened = Open(copy, ExpertsWanted::kElsewhere);
  ASSERT_TRUE(opened) << Message(opened);
  EXPECT_EQ(opened->fingerprint(), before);
  EXPECT_TRUE(opened->has_expert({1, 0}));
  EXPECT_FALSE(opened->has_expert({2, 0}));
  EXPECT_FALSE(opened->has_expert({3, 39}));
  EXPECT_TRUE(opened->has_dense("language_model.model.layers.2.block_sparse_moe.gate.weight"));
  EXPECT_GT(opened->Dense("language_model.model.layers.2.block_sparse_moe.gate.weight").bytes, 0u);
}

TEST(ExpertsElsewhere, WithoutTheSetTheErrorSaysWhereTheyWent) {
  MicroCopy copy;
  TakeExpertsOut(copy, 3, ToHex(0x5e7));
  const Result<Checkpoint> opened = Open(copy, ExpertsWanted::kInShards);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(opened.error().message(),
              AllOf(HasSubstr(MicroCopy::ShardName(3)), HasSubstr("00000000000005e7"), HasSubstr("--experts")));
}

TEST(ExpertsElsewhere, AnInspectionSaysThatTheyWereMoved) {
  MicroCopy copy;
  for (const int number : {3, 4}) TakeExpertsOut(copy, number, ToHex(0x5e7));
  const Result<FolderReport> report = InspectFolder(copy.folder());
  ASSERT_TRUE(report);
  ASSERT_EQ(report->problems.size(), 1u);
  EXPECT_THAT(report->problems[0], AllOf(HasSubstr("480 of "), HasSubstr("moved the experts of 2 shards")));
}

TEST(ExpertsElsewhere, ANoteThatIsNoSetIdIsNotRepeated) {
  MicroCopy copy;
  TakeExpertsOut(copy, 3, "\x1b[31mred");
  EXPECT_THAT(Message(Open(copy, ExpertsWanted::kInShards)), HasSubstr("unreadable"));
}

TEST(ExpertsElsewhere, AnIndexWithoutThemIsEnough) {
  MicroCopy copy;
  for (int number = 2; number <= 6; ++number) TakeExpertsOut(copy, number, "");
  copy.EditJson(kIndex, [](Json& index) {
    Json kept = Json::object();
    for (const auto& [name, shard] : index["weight_map"].items())
      if (!IsExpert(name)) kept[name] = shard;
    index["weight_map"] = kept;
  });
  const Result<Checkpoint> opened = Open(copy, ExpertsWanted::kElsewhere);
  ASSERT_TRUE(opened) << Message(opened);
  EXPECT_FALSE(opened->has_expert({5, 39}));
  EXPECT_THAT(Message(Open(copy, ExpertsWanted::kInShards)), AllOf(HasSubstr("weight_map"), HasSubstr("--experts")));
}

TEST(ExpertsElsewhere, AShardOfExpertsOnlyMayBeMissing) {
  MicroCopy copy;
  // Experts of layer 2 into a shard of their own, which is then deleted.
  TakeExpertsOut(copy, 3, "");
  copy.EditJson(kIndex, [](Json& index) {
    for (auto& [name, shard] : index["weight_map"].items())
      if (IsExpert(name) && name.find("layers.2.") != std::string::npos) shard = "experts.safetensors";
  });
  const Result<Checkpoint> opened = Open(copy, ExpertsWanted::kElsewhere);
  ASSERT_TRUE(opened) << Message(opened);
  EXPECT_FALSE(opened->has_expert({2, 7}));
  EXPECT_THAT(Message(Open(copy, ExpertsWanted::kInShards)),
              AllOf(HasSubstr("experts.safetensors: missing"), HasSubstr("--experts")));
}

TEST(ExpertsElsewhere, DenseTensorsMustBeThere) {
  MicroCopy copy;
  fs::remove(copy.shard(4));
  const Result<Checkpoint> opened = Open(copy, ExpertsWanted::kElsewhere);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(opened.error().message(), HasSubstr(MicroCopy::ShardName(4)));
}

TEST(ExpertsElsewhere, WhatIsThereIsStillChecked) {
  MicroCopy copy;
  copy.EditHeader(3, [](Json& header) { header[ExpertTensorName(2, 7, "w1.weight_packed")]["shape"] = {1, 1024}; });
  EXPECT_THAT(Message(Open(copy, ExpertsWanted::kElsewhere)), HasSubstr("experts.7.w1.weight_packed"));
  MicroCopy cut;
  fs::resize_file(cut.shard(3), fs::file_size(cut.shard(3)) - 1);
  EXPECT_THAT(Message(Open(cut, ExpertsWanted::kElsewhere)), HasSubstr("truncated"));
}

TEST(ExpertsElsewhere, HeadersAreCachedApartFromThoseWithExperts) {
  MicroCopy copy;
  const test::TempFolder cache;
  ASSERT_TRUE(Open(copy, ExpertsWanted::kInShards, cache.path()));
  EXPECT_FALSE(Open(copy, ExpertsWanted::kElsewhere, cache.path())->headers_were_cached());
  EXPECT_TRUE(Open(copy, ExpertsWanted::kInShards, cache.path())->headers_were_cached());
  TakeExpertsOut(copy, 3, ToHex(0x5e7));
  const Result<Checkpoint> first = Open(copy, ExpertsWanted::kElsewhere, cache.path());
  ASSERT_TRUE(first) << Message(first);
  EXPECT_FALSE(first->headers_were_cached()) << "the shard has changed";
  const Result<Checkpoint> second = Open(copy, ExpertsWanted::kElsewhere, cache.path());
  ASSERT_TRUE(second) << Message(second);
  EXPECT_TRUE(second->headers_were_cached());
  EXPECT_FALSE(second->has_expert({2, 7}));
  EXPECT_TRUE(second->has_expert({3, 7}));
  EXPECT_EQ(second->fingerprint(), first->fingerprint());
  EXPECT_FALSE(Open(copy, ExpertsWanted::kInShards, cache.path())) << "a cache must not hide that they are gone";
}

TEST(PartialCheckpoint, ShardsMayBeMissingWithAllTheyHold) {
  MicroCopy copy;
  const uint64_t fingerprint = copy.Open()->fingerprint();
  for (const int number : {1, 3, 7}) fs::remove(copy.shard(number));
  const test::TempFolder cache;
  const Result<Checkpoint> opened = Open(copy, ExpertsWanted::kPartial, cache.path());
  ASSERT_TRUE(opened) << Message(opened);
  EXPECT_EQ(opened->shard_count(), 4);
  EXPECT_EQ(opened->fingerprint(), fingerprint);
  EXPECT_TRUE(opened->has_expert({1, 3}));
  EXPECT_FALSE(opened->has_expert({2, 3}));
  EXPECT_FALSE(opened->has_dense("language_model.model.embed_tokens.weight"));
  EXPECT_FALSE(opened->has_dense("language_model.model.layers.2.block_sparse_moe.gate.weight"));
  EXPECT_TRUE(opened->has_dense("language_model.model.layers.1.block_sparse_moe.gate.weight"));
  EXPECT_TRUE(opened->DenseNames(2).empty());
  EXPECT_FALSE(opened->drives().empty());
  EXPECT_TRUE(fs::is_empty(cache.path())) << "an unfinished download is not worth a cache";
}

TEST(PartialCheckpoint, NothingNeedsToBeThereButTheIndex) {
  MicroCopy copy;
  for (int number = 1; number <= 7; ++number) fs::remove(copy.shard(number));
  const Result<Checkpoint> opened = Open(copy, ExpertsWanted::kPartial);
  ASSERT_TRUE(opened) << Message(opened);
  EXPECT_EQ(opened->shard_count(), 0);
  EXPECT_EQ(opened->drives().size(), 1u);
  fs::remove(copy.path(kIndex));
  EXPECT_FALSE(Open(copy, ExpertsWanted::kPartial));
}

TEST(PartialCheckpoint, AShardThatLacksWhatTheIndexSaysIsCorrupt) {
  MicroCopy copy;
  TakeExpertsOut(copy, 3, "");
  EXPECT_THAT(Message(Open(copy, ExpertsWanted::kPartial)), HasSubstr("got a header without it"));
  MicroCopy moved;
  TakeExpertsOut(moved, 3, ToHex(1));
  const Result<Checkpoint> opened = Open(moved, ExpertsWanted::kPartial);
  ASSERT_TRUE(opened) << Message(opened);
  EXPECT_FALSE(opened->has_expert({2, 0}));
}

TEST(ShardDrives, ShardsOfOneFolderAreOneDriveNamedAsGiven) {
  const MicroCopy copy;
  const Result<Checkpoint> opened = copy.Open();
  ASSERT_TRUE(opened);
  ASSERT_EQ(opened->drives().size(), 1u);
  EXPECT_EQ(opened->drives()[0].name, copy.folder());
  for (int i = 0; i < opened->shard_count(); ++i) EXPECT_EQ(opened->shard_drive(i), 0);
}

TEST(ShardDrives, LinksToAnotherDeviceAreAnotherDrive) {
  MicroCopy copy;
  const std::string other = "/dev/shm";
  std::error_code error;
  const fs::path target = fs::path(other) / fs::path(copy.folder()).filename();
  fs::create_directories(target, error);
  if (error) GTEST_SKIP() << other << " cannot be written";
  struct Remove {
    fs::path path;
    ~Remove() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  } remove{target};
  fs::copy_file(copy.shard(4), target / "shard4");
  fs::remove(copy.shard(4));
  fs::create_symlink(target / "shard4", copy.shard(4));
  const Result<Checkpoint> opened = copy.Open();
  ASSERT_TRUE(opened) << Message(opened);
  if (opened->drives().size() == 1) GTEST_SKIP() << other << " is on the device of the temporary folder";
  ASSERT_EQ(opened->drives().size(), 2u);
  EXPECT_EQ(opened->drives()[1].name, target.string());
  EXPECT_EQ(opened->shard_drive(3), 1);
  EXPECT_EQ(opened->shard_drive(2), 0);
}

}  // namespace
}  // namespace deltafin
