#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_index.h"
#include "checkpoint/integrity.h"
#include "checkpoint/micro_copy.h"
#include "spec/tensor_table.h"

namespace deltafin {
namespace {

using test::MicroCopy;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kExpert = "language_model.model.layers.1.block_sparse_moe.experts.7.";

TEST(Checkpoint, OpensK3MicroAndK3Nano) {
  EXPECT_EQ(MicroCopy().Message(), "opened");
  const auto nano = Checkpoint::Open({test::RepoPath("models/k3-nano"), ""});
  ASSERT_TRUE(nano) << nano.error().message();
  EXPECT_EQ(nano->spec().layers.size(), 9u);
  EXPECT_EQ(nano->shard_count(), 10);
}

// The places, against the headers as another JSON library reads them.
TEST(Checkpoint, PutsEveryTensorWhereTheHeadersSay) {
  const MicroCopy copy;
  const Result<Checkpoint> opened = copy.Open();
  ASSERT_TRUE(opened) << opened.error().message();
  const ExpertGeometry geometry(opened->spec());
  int dense = 0, parts = 0;
  uint64_t dense_bytes = 0;
  for (int number = 1; number <= 7; ++number) {
    const test::ForeignHeader header = test::ReadForeignHeader(copy.shard(number));
    for (const auto& [name, value] : header.tensors.items()) {
      const uint64_t offset = header.data_start + value["data_offsets"][0].get<uint64_t>();
      const TensorName parsed = ParseTensorName(name);
      if (parsed.kind != TensorName::Kind::kExpert) {
        const TensorPlace& place = opened->Dense(name);
        EXPECT_EQ(place.offset, offset) << name;
        EXPECT_EQ(opened->shard(place.shard).path(), copy.shard(number)) << name;
        EXPECT_EQ(place.bytes, value["data_offsets"][1].get<uint64_t>() - value["data_offsets"][0].get<uint64_t>());
        ++dense;
        dense_bytes += place.bytes;
        continue;
      }
      const ExpertPlace& place = opened->Expert({parsed.layer, static_cast<int32_t>(parsed.expert)});
      const auto matrix = static_cast<size_t>(parsed.rest[1] - '1');
      const bool packed = parsed.rest.ends_with("packed");
      EXPECT_EQ(place.offset + (packed ? place.layout.packed_offset : place.layout.scale_offset)[matrix], offset)
          << name;
      EXPECT_EQ(opened->shard(place.shard).path(), copy.shard(number)) << name;
      ++parts;
    }
  }
  EXPECT_EQ(dense, 23 + 28 + 22 + 28 + 28 + 22 + 5);
  EXPECT_EQ(parts, 5 * 40 * 6);
  EXPECT_EQ(dense_bytes + 5u * 40 * 3264, 2217184u);  // metadata.total_size of the index
}

TEST(Checkpoint, ListsALayersDenseTensorsInFileOrder) {
  const MicroCopy copy;
  const Result<Checkpoint> opened = copy.Open();
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->DenseNames(0).size(), 23u);
  EXPECT_EQ(opened->DenseNames(0).front(), "language_model.model.layers.0.input_layernorm.weight");
  EXPECT_EQ(opened->DenseNames(-1).size(), 5u);
  EXPECT_EQ(opened->DenseNames(-1).front(), "language_model.lm_head.weight");
}

TEST(Checkpoint, TheFingerprintFollowsConfigAndWhichShardHoldsADenseTensor) {
  MicroCopy copy;
  const uint64_t before = copy.Open()->fingerprint();
  EXPECT_EQ(MicroCopy().Open()->fingerprint(), before);
  copy.Poke(MicroCopy::ShardName(2), 347000, 1);  // weights
  copy.EditHeader(
      2, [](Json&) {}, 8);
  EXPECT_EQ(copy.Open()->fingerprint(), before);
  copy.EditJson("config.json", [](Json& c) { c["text_config"]["rms_norm_eps"] = 1e-6; });
  EXPECT_NE(copy.Open()->fingerprint(), before);
}

TEST(Checkpoint, TheFingerprintFollowsTheNamesOfShards) {
  MicroCopy copy;
  const uint64_t before = copy.Open()->fingerprint();
  std::filesystem::rename(copy.shard(3), copy.path("other.safetensors"));
  copy.EditJson(kIndex, [](Json& index) {
    for (Json& shard : index["weight_map"])
      if (shard == MicroCopy::ShardName(3)) shard = "other.safetensors";
  });
  EXPECT_NE(copy.Open()->fingerprint(), before);
}

TEST(Checkpoint, OneUnshardedFileNeedsNoIndex) {
  MicroCopy copy;
  Json all = Json::object();
  std::string data;
  for (int number = 1; number <= 7; ++number) {
    const test::ForeignHeader header = test::ReadForeignHeader(copy.shard(number));
    for (const auto& [name, value] : header.tensors.items()) {
      all[name] = value;
      for (Json& offset : all[name]["data_offsets"]) offset = offset.get<uint64_t>() + data.size();
    }
    data += test::ReadBytes(copy.shard(number)).substr(header.data_start);
    std::filesystem::remove(copy.shard(number));
  }
  std::filesystem::remove(copy.path(kIndex));
  test::WriteBytes(copy.path("model.safetensors"), std::string(8, '\0') + data);
  const std::string json = all.dump();
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(json.size() >> (8 * i) & 255);
  test::WriteBytes(copy.path("model.safetensors"), length + json + data);
  const Result<Checkpoint> opened = copy.Open();
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ(opened->shard_count(), 1);
}

// Moves the parts of an expert: the order of its six tensors is free.
void ShuffleExpert(Json& header, const std::vector<std::string>& order) {
  uint64_t at = header[kExpert + std::string("w1.weight_packed")]["data_offsets"][0].get<uint64_t>();
  for (const std::string& part : order) {
    Json& offsets = header[kExpert + part]["data_offsets"];
    const uint64_t bytes = offsets[1].get<uint64_t>() - offsets[0].get<uint64_t>();
    offsets = {at, at + bytes};
    at += bytes;
  }
}

TEST(Checkpoint, AnExpertsTensorsMayComeInAnyOrder) {
  MicroCopy copy;
  copy.EditHeader(2, [](Json& header) {
    ShuffleExpert(header, {"w3.weight_scale", "w3.weight_packed", "w2.weight_packed", "w2.weight_scale",
                           "w1.weight_packed", "w1.weight_scale"});
  });
  const Result<Checkpoint> opened = copy.Open();
  ASSERT_TRUE(opened) << opened.error().message();
  const ExpertRecordLayout& layout = opened->Expert({1, 7}).layout;
  EXPECT_EQ(layout.scale_offset[2], 0u);
  EXPECT_EQ(layout.packed_offset[2], 64u);
  EXPECT_EQ(layout.packed_offset[1], 1088u);
  EXPECT_EQ(layout.scale_offset[0], 3 * 1088u - 64);
}

TEST(Checkpoint, AnExpertInTwoPiecesIsRefused) {
  MicroCopy copy;
  copy.EditHeader(2, [](Json& header) {
    // Swaps two equally large scale tensors of neighbouring experts.
    std::swap(header["language_model.model.layers.1.block_sparse_moe.experts.7.w1.weight_scale"],
              header["language_model.model.layers.1.block_sparse_moe.experts.8.w1.weight_scale"]);
  });
  EXPECT_EQ(copy.Code(), ErrorCode::kUnsupported);
  EXPECT_THAT(copy.Message(), HasSubstr("layer 1, expert 7: expected its six tensors back to back in one file"));
}

TEST(Checkpoint, VisionShardsNeedNotBeThere) {
  MicroCopy copy;
  copy.EditJson(kIndex, [](Json& index) {
    index["weight_map"]["vision_tower.patch_embed.proj.weight"] = "vision.safetensors";
    index["weight_map"]["mm_projector.proj.0.weight"] = "vision.safetensors";
  });
  EXPECT_EQ(copy.Message(), "opened");
}

TEST(Checkpoint, DataMayStartAtAnyByte) {
  MicroCopy copy;
  copy.EditHeader(
      1, [](Json&) {}, 3);
  EXPECT_EQ(copy.Message(), "opened");
}

TEST(BadCheckpoint, FolderThatIsNotThere) {
  const auto opened = Checkpoint::Open({"/no/such/folder", ""});
  EXPECT_EQ(opened.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(opened.error().message(), HasSubstr("/no/such/folder: expected a checkpoint folder"));
}

TEST(BadCheckpoint, FileInsteadOfAFolder) {
  const auto opened = Checkpoint::Open({test::RepoPath("CMakeLists.txt"), ""});
  EXPECT_EQ(opened.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(opened.error().message(), HasSubstr("is not a folder"));
}

// Each file of a checkpoint replaced by something that is none; opening a pipe for reading would wait for ever.
TEST(BadCheckpoint, FoldersPipesAndDevicesInPlaceOfFiles) {
  for (const std::string& file : {std::string("config.json"), std::string(kIndex), MicroCopy::ShardName(2)}) {
    MicroCopy copy;
    const std::string path = copy.path(file);
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    EXPECT_EQ(copy.Code(), ErrorCode::kCorrupt) << file;
    EXPECT_THAT(copy.Message(), AllOf(HasSubstr(file), HasSubstr("expected a regular file")));
    std::filesystem::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_EQ(copy.Code(), ErrorCode::kCorrupt) << file;
    std::filesystem::remove(path);
    std::filesystem::create_symlink("/dev/zero", path);
    EXPECT_EQ(copy.Code(), ErrorCode::kCorrupt) << file;
  }
}

TEST(BadCheckpoint, PipeInPlaceOfTheSingleFile) {
  MicroCopy copy;
  std::filesystem::remove(copy.path(kIndex));
  ASSERT_EQ(mkfifo(copy.path("model.safetensors").c_str(), 0600), 0);
  EXPECT_EQ(copy.Code(), ErrorCode::kCorrupt);
}

TEST(Checkpoint, OpeningReportsEveryShardAndCanBeStopped) {
  const MicroCopy copy;
  CheckpointOptions options{copy.folder(), ""};
  CancelSource cancel;
  std::vector<std::pair<uint64_t, uint64_t>> seen;
  options.cancel = cancel.token();
  options.progress = [&](uint64_t done, uint64_t total) { seen.emplace_back(done, total); };
  ASSERT_TRUE(Checkpoint::Open(options));
  ASSERT_EQ(seen.size(), 7u);
  for (uint64_t i = 0; i < 7; ++i) EXPECT_EQ(seen[i], std::pair(i + 1, uint64_t{7}));

  seen.clear();
  options.progress = [&](uint64_t done, uint64_t total) {
    seen.emplace_back(done, total);
    if (done == 3) cancel.Cancel();
  };
  const auto stopped = Checkpoint::Open(options);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code(), ErrorCode::kCancelled);
  EXPECT_EQ(seen.size(), 3u);
}

TEST(BadCheckpoint, FolderThatMayNotBeRead) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  MicroCopy copy;
  std::filesystem::permissions(copy.folder(), std::filesystem::perms::none);
  const std::string message = copy.Message();
  std::filesystem::permissions(copy.folder(), std::filesystem::perms::owner_all);
  EXPECT_THAT(message, AllOf(HasSubstr("config.json"), HasSubstr("Permission denied")));
}

TEST(BadCheckpoint, NoConfig) {
  MicroCopy copy;
  std::filesystem::remove(copy.path("config.json"));
  EXPECT_EQ(copy.Code(), ErrorCode::kNotFound);
  EXPECT_THAT(copy.Message(), HasSubstr("config.json"));
}

TEST(BadCheckpoint, NoIndexAndNoSingleFile) {
  MicroCopy copy;
  std::filesystem::remove(copy.path(kIndex));
  EXPECT_EQ(copy.Code(), ErrorCode::kNotFound);
  EXPECT_THAT(copy.Message(), AllOf(HasSubstr(kIndex), HasSubstr("download the rest")));
}

TEST(BadCheckpoint, MissingShardsAreCountedAndOneIsNamedWithATensor) {
  MicroCopy copy;
  std::filesystem::remove(copy.shard(3));
  std::filesystem::remove(copy.shard(6));
  EXPECT_EQ(copy.Code(), ErrorCode::kNotFound);
  EXPECT_THAT(copy.Message(),
              AllOf(HasSubstr("model-00003-of-000007.safetensors: missing"), HasSubstr("262 tensors"),
                    HasSubstr("'language_model.model.layers.2."), HasSubstr("2 of 7 shards"), HasSubstr("download")));
}

TEST(BadCheckpoint, TruncatedShard) {
  MicroCopy copy;
  std::filesystem::resize_file(copy.shard(4), 347559);
  EXPECT_EQ(copy.Code(), ErrorCode::kCorrupt);
  EXPECT_THAT(copy.Message(), AllOf(HasSubstr("model-00004-of-000007.safetensors: truncated: expected 347560 bytes"),
                                    HasSubstr("got 347559"), HasSubstr("download it again")));
}

TEST(BadCheckpoint, ShardTruncatedInsideItsHeader) {
  MicroCopy copy;
  std::filesystem::resize_file(copy.shard(4), 1000);
  EXPECT_THAT(copy.Message(), HasSubstr("truncated: expected a header of 36160 bytes, got a file of 1000 bytes"));
  std::filesystem::resize_file(copy.shard(4), 0);
  EXPECT_THAT(copy.Message(), HasSubstr("got a file of 0 bytes"));
}

TEST(BadCheckpoint, ShardWithBytesAtTheEnd) {
  MicroCopy copy;
  std::filesystem::resize_file(copy.shard(4), 347561);
  EXPECT_THAT(copy.Message(), HasSubstr("too long: expected 347560 bytes"));
}

TEST(BadCheckpoint, HostileHeaderLength) {
  MicroCopy copy;
  copy.Poke(MicroCopy::ShardName(5), 7, 0x7f);
  EXPECT_THAT(copy.Message(), AllOf(HasSubstr("model-00005"), HasSubstr("header length: expected at most")));
}

TEST(BadCheckpoint, OverlappingTensors) {
  MicroCopy copy;
  copy.EditHeader(7, [](Json& h) { h["language_model.model.norm.weight"]["data_offsets"] = {196600, 196792}; });
  EXPECT_THAT(copy.Message(), AllOf(HasSubstr("model-00007"), HasSubstr("'language_model.model.norm.weight' overlaps "
                                                                        "'language_model.model.embed_tokens.weight'")));
}

TEST(BadCheckpoint, OffsetsOutsideTheFile) {
  MicroCopy copy;
  copy.EditHeader(7, [](Json& h) {
    h["language_model.model.output_attn_res_proj.weight"]["data_offsets"] = {1000000, 1000192};
  });
  EXPECT_THAT(copy.Message(), HasSubstr("'language_model.model.output_attn_res_proj.weight'"));
}

TEST(BadCheckpoint, WrongDtype) {
  MicroCopy copy;
  copy.EditHeader(1, [](Json& h) {
    Json& dt_bias = h["language_model.model.layers.0.self_attn.dt_bias"];
    dt_bias["dtype"] = "BF16";
    dt_bias["shape"] = {192};
  });
  EXPECT_THAT(copy.Message(), AllOf(HasSubstr("'language_model.model.layers.0.self_attn.dt_bias'"),
                                    HasSubstr("expected F32 [96]"), HasSubstr("got BF16 [192]")));
}

TEST(BadCheckpoint, WrongShape) {
  MicroCopy copy;
  copy.EditHeader(1, [](Json& h) { h["language_model.model.layers.0.mlp.up_proj.weight"]["shape"] = {96, 160}; });
  EXPECT_THAT(copy.Message(),
              AllOf(HasSubstr("model-00001"), HasSubstr("'language_model.model.layers.0.mlp.up_proj.weight'"),
                    HasSubstr("expected BF16 [160, 96]"), HasSubstr("got BF16 [96, 160]")));
}

TEST(BadCheckpoint, ConfigOfAnotherModel) {
  MicroCopy copy;
  copy.EditJson("config.json", [](Json& c) { c["text_config"]["num_experts"] = 48; });
  EXPECT_THAT(copy.Message(), AllOf(HasSubstr(kIndex), HasSubstr("experts.40.w1.weight_packed'")));
}

TEST(BadCheckpoint, TensorMissingFromTheIndex) {
  MicroCopy copy;
  copy.EditJson(kIndex, [](Json& i) { i["weight_map"].erase("language_model.model.norm.weight"); });
  EXPECT_THAT(copy.Message(), AllOf(HasSubstr(kIndex), HasSubstr("'language_model.model.norm.weight'"),
                                    HasSubstr("1 of 1356 tensors")));
}

TEST(BadCheckpoint, IndexAndHeaderDisagree) {
  MicroCopy copy;
  copy.EditJson(kIndex, [](Json& i) { i["weight_map"]["language_model.model.norm.weight"] = MicroCopy::ShardName(1); });
  EXPECT_EQ(copy.Code(), ErrorCode::kCorrupt);
  EXPECT_THAT(copy.Message(), AllOf(HasSubstr("model-00007"), HasSubstr("'language_model.model.norm.weight'"),
                                    HasSubstr("expected in model-00001-of-000007.safetensors")));
}

TEST(BadCheckpoint, HeaderWithoutATensorOfTheIndex) {
  MicroCopy copy;
  copy.EditHeader(7, [](Json& h) {
    Json renamed = Json::object();
    for (const auto& [name, value] : h.items())
      renamed[name == "language_model.model.norm.weight" ? "vision_tower.x" : name] = value;
    h = renamed;
  });
  EXPECT_THAT(copy.Message(), AllOf(HasSubstr("model-00007"), HasSubstr("'language_model.model.norm.weight'"),
                                    HasSubstr("got a header without it")));
}

TEST(BadCheckpoint, UnknownTextTensor) {
  MicroCopy copy;
  copy.EditJson(kIndex, [](Json& i) {
    i["weight_map"]["language_model.model.layers.0.self_attn.rotary.weight"] = MicroCopy::ShardName(1);
  });
  EXPECT_EQ(copy.Code(), ErrorCode::kUnsupported);
  EXPECT_THAT(copy.Message(), HasSubstr("'language_model.model.layers.0.self_attn.rotary.weight'"));
}

TEST(BadCheckpoint, ShardNameThatLeavesTheFolder) {
  MicroCopy copy;
  copy.EditJson(kIndex, [](Json& i) { i["weight_map"]["language_model.model.norm.weight"] = "../secret.safetensors"; });
  EXPECT_THAT(copy.Message(), HasSubstr("expected the name of a file in the same folder, got '../secret.safetensors'"));
}

TEST(BadCheckpoint, GitLfsPointers) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n";
  for (const std::string& file : {std::string("config.json"), std::string(kIndex), MicroCopy::ShardName(2)}) {
    MicroCopy copy;
    test::WriteBytes(copy.path(file), pointer);
    EXPECT_THAT(copy.Message(), AllOf(HasSubstr(file), HasSubstr("git-lfs pointer"), HasSubstr("git lfs pull")));
  }
}

class HeaderCache : public ::testing::Test {
 protected:
  Result<Checkpoint> Open() { return Checkpoint::Open({copy_.folder(), cache_.path() + "/state"}); }
  std::string CacheFile() {
    for (const auto& entry : std::filesystem::directory_iterator(cache_.path() + "/state")) return entry.path();
    return "";
  }
  MicroCopy copy_;
  test::TempFolder cache_;
};

TEST_F(HeaderCache, TheSecondOpenUsesItAndFindsTheSamePlaces) {
  const Result<Checkpoint> first = Open();
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_FALSE(first->headers_were_cached());
  const Result<Checkpoint> second = Open();
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->headers_were_cached());
  EXPECT_EQ(second->fingerprint(), first->fingerprint());
  EXPECT_EQ(second->shard_count(), first->shard_count());
  for (const std::string& name : first->DenseNames(2)) {
    EXPECT_EQ(second->Dense(name).offset, first->Dense(name).offset);
    EXPECT_EQ(second->Dense(name).shape, first->Dense(name).shape);
    EXPECT_EQ(second->Dense(name).shard, first->Dense(name).shard);
  }
  EXPECT_EQ(second->Expert({5, 39}).offset, first->Expert({5, 39}).offset);
  EXPECT_EQ(second->Expert({5, 39}).layout, first->Expert({5, 39}).layout);
}

TEST_F(HeaderCache, AChangedShardIsReadAgain) {
  ASSERT_TRUE(Open());
  copy_.EditHeader(
      3, [](Json&) {}, 16);
  const Result<Checkpoint> opened = Open();
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_FALSE(opened->headers_were_cached());
  EXPECT_TRUE(Open()->headers_were_cached());
}

TEST_F(HeaderCache, AChangedConfigOrIndexIsReadAgain) {
  ASSERT_TRUE(Open());
  copy_.EditJson("config.json", [](Json& c) { c["text_config"]["rms_norm_eps"] = 1e-6; });
  EXPECT_FALSE(Open()->headers_were_cached());
  copy_.EditJson(kIndex, [](Json& i) { i["metadata"]["note"] = "x"; });
  EXPECT_FALSE(Open()->headers_were_cached());
}

TEST_F(HeaderCache, AMissingShardIsAnErrorInSpiteOfIt) {
  ASSERT_TRUE(Open());
  std::filesystem::remove(copy_.shard(3));
  EXPECT_THAT(Open().error().message(), HasSubstr("model-00003-of-000007.safetensors: missing"));
}

TEST_F(HeaderCache, EveryDamagedByteIsNoticed) {
  ASSERT_TRUE(Open());
  const std::string file = CacheFile();
  const std::string good = test::ReadBytes(file);
  for (size_t at = 0; at < good.size(); at += 1 + good.size() / 40) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    test::WriteBytes(file, bad);
    const Result<Checkpoint> opened = Open();
    ASSERT_TRUE(opened);
    EXPECT_FALSE(opened->headers_were_cached()) << "byte " << at;
  }
  test::WriteBytes(file, good.substr(0, good.size() / 2));
  EXPECT_FALSE(Open()->headers_were_cached());
  test::WriteBytes(file, "");
  EXPECT_FALSE(Open()->headers_were_cached());
  EXPECT_TRUE(Open()->headers_were_cached());
}

TEST_F(HeaderCache, AForgedPlaceOutsideTheFileIsRefusedThoughItsChecksumIsRight) {
  const Result<Checkpoint> opened = Open();
  ASSERT_TRUE(opened);
  const TensorDirectory directory(opened->spec());
  CheckpointPlaces places;
  places.shards = {"a"};
  places.stamps = {{4096, 0}};
  places.dense.resize(static_cast<size_t>(directory.dense_count()));
  for (int64_t slot = 0; slot < directory.dense_count(); ++slot) {
    TensorPlace& place = places.dense[static_cast<size_t>(slot)];
    place.shape = directory.Spec(slot).shape;
    place.dtype = directory.Spec(slot).dtype;
    place.offset = uint64_t{1} << 62;
  }
  places.experts.resize(static_cast<size_t>(directory.expert_count()));
  const CheckpointSource source{"folder", 1, {}};
  EXPECT_FALSE(ParsePlaces(SerializePlaces(source, places), source, directory));
}

TEST_F(HeaderCache, AFolderThatCannotBeWrittenCostsNothingButTime) {
  const std::string file = cache_.path() + "/file";
  test::WriteBytes(file, "not a folder");
  const auto opened = Checkpoint::Open({copy_.folder(), file});
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_FALSE(opened->headers_were_cached());
  EXPECT_THAT(opened->index_cache_note(), AllOf(HasSubstr("cannot be cached"), HasSubstr(file)));
}

TEST_F(HeaderCache, SaysNothingWhenItWorksOrIsNotWanted) {
  EXPECT_EQ(Open()->index_cache_note(), "");
  EXPECT_EQ(Open()->index_cache_note(), "");
  EXPECT_EQ(copy_.Open()->index_cache_note(), "");
}

TEST_F(HeaderCache, AForgedShardNameNeverLeavesTheFolder) {
  const Result<Checkpoint> opened = Open();
  ASSERT_TRUE(opened);
  const TensorDirectory directory(opened->spec());
  CheckpointSource source;
  source.folder = copy_.folder();
  source.config_hash = Hash64(test::ReadBytes(copy_.path("config.json")));
  source.index = *StampFile(copy_.path(kIndex));
  std::optional<CheckpointPlaces> places = ParsePlaces(test::ReadBytes(CacheFile()), source, directory);
  ASSERT_TRUE(places);
  ASSERT_TRUE(ParsePlaces(SerializePlaces(source, *places), source, directory));
  for (const char* name : {"../x", "/etc/passwd", "..", "", "a/b"}) {
    places->shards[0] = name;
    EXPECT_FALSE(ParsePlaces(SerializePlaces(source, *places), source, directory)) << name;
  }
}

TEST_F(HeaderCache, KeepsTheLatestFilesAndRemovesLeftoversOfDeadProcesses) {
  const std::string state = cache_.path() + "/state";
  std::filesystem::create_directory(state);
  const auto now = std::filesystem::file_time_type::clock::now();
  for (int age = 1; age <= 20; ++age) {
    const std::string path = Cat(state, "/headers-", 1000 + age, ".bin");
    test::WriteBytes(path, "x");
    std::filesystem::last_write_time(path, now - std::chrono::hours(age));
  }
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const std::string dead = Cat(state, "/headers-77.bin.part-", child);
  const std::string alive = Cat(state, "/headers-78.bin.part-", getppid());
  const std::string other = Cat(state, "/notes.part-", child);
  for (const std::string& path : {dead, alive, other}) test::WriteBytes(path, "x");
  ASSERT_TRUE(Open());
  const auto exists = [](const std::string& path) { return std::filesystem::exists(path); };
  EXPECT_FALSE(exists(dead));
  EXPECT_TRUE(exists(alive));
  EXPECT_TRUE(exists(other));
  for (int age = 1; age <= 20; ++age) EXPECT_EQ(exists(Cat(state, "/headers-", 1000 + age, ".bin")), age <= 15) << age;
  EXPECT_TRUE(Open()->headers_were_cached());
}

}  // namespace
}  // namespace deltafin
