// Faults of a model's own files: shards, index, config, tokenizer, permissions.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "checkpoint/model_files.h"
#include "doctor/doctor_case.h"
#include "pack/model_file_check.h"
#include "pack/pack_case.h"
#include "support/test_data.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;
constexpr auto kFault = FindingState::kFault;

class NanoFaults : public testing::Test {
 protected:
  void SetUp() override { LinkNano(model_); }

  std::string Path(const std::string& name) const { return model_ + "/" + name; }
  static std::string Shard(int number) {
    const std::string digits = std::to_string(number);
    return "model-" + std::string(5 - digits.size(), '0') + digits + "-of-000010.safetensors";
  }
  // The file in the place of the link, changed.
  void ChangeShard(int number, const std::function<void(std::string&)>& change) {
    std::string bytes = ReadFileBytes(Path(Shard(number)));
    change(bytes);
    fs::remove(Path(Shard(number)));
    WriteFileBytes(Path(Shard(number)), bytes);
  }
  void ChangeJson(const std::string& name, const std::function<void(Json&)>& change) {
    Json json = Json::parse(ReadFileBytes(Path(name)));
    change(json);
    WriteFileBytes(Path(name), json.dump());
  }
  std::vector<Finding> Findings() { return Examine(OptionsFor(model_), host_); }

  TempFolder root_;
  const std::string model_ = root_.path() + "/model";
  PlantedHost host_;
};

TEST_F(NanoFaults, NoneOfThemInTheModelAsItCame) { EXPECT_EQ(Problems(Findings()), ""); }

TEST_F(NanoFaults, AMissingShardIsNamed) {
  fs::remove(Path(Shard(3)));
  const std::vector<Finding> findings = Findings();
  ExpectFinding(findings, kFault, "model.shard-missing", Shard(3));
  ExpectFinding(findings, FindingState::kNote, "start.not-tried");
}

TEST_F(NanoFaults, MissingShardsAreOneFindingThatNamesTheFirst) {
  for (const int shard : {2, 5, 9}) fs::remove(Path(Shard(shard)));
  const std::vector<Finding> findings = Findings();
  for (const int shard : {2, 5, 9}) ExpectFinding(findings, kFault, "model.shard-missing", Shard(shard));
  for (const int shard : {1, 3, 4, 6, 7}) fs::remove(Path(Shard(shard)));
  const std::vector<Finding> more = Findings();
  ExpectFinding(more, kFault, "model.shard-missing", "8 of 10 shards are missing: ");
  ExpectFinding(more, kFault, "model.shard-missing", Shard(5) + " and 3 more");
  EXPECT_EQ(std::count_if(more.begin(), more.end(), [](const Finding& f) { return f.name == "model.shard-missing"; }),
            1);
}

TEST_F(NanoFaults, AShardWithAHoleIsNamed) {
  const std::string bytes = ReadFileBytes(Path(Shard(3)));
  fs::remove(Path(Shard(3)));
  WriteFileBytes(Path(Shard(3)), bytes.substr(0, bytes.size() / 4));
  fs::resize_file(Path(Shard(3)), bytes.size());
  ExpectFinding(Findings(), kFault, "model.shard-hollow", Shard(3));
  host_.drive.file_system = "btrfs";  // may have compressed it
  EXPECT_EQ(Named(Findings(), "model.shard-hollow").name, "");
}

TEST_F(NanoFaults, AFlippedBitInAShardIsFoundByTheListOfChecksums) {
  ChangeShard(7, [](std::string& bytes) { bytes[bytes.size() / 2] ^= 4; });
  DoctorOptions options = OptionsFor(model_);
  options.quick = false;
  ExpectFinding(Examine(options, host_), FindingState::kNote, "model.no-checksums");
  ModelFiles files;
  for (const int shard : {6, 7}) {
    const std::string whole = RepoPath("models/k3-nano/" + Shard(shard));
    Result<Digest> sha256 = Digest::Sha256();
    ASSERT_TRUE(sha256);
    const Result<std::string> digest = DigestOfFile(whole, fs::file_size(whole), std::move(*sha256), [] {}, {});
    ASSERT_TRUE(digest) << digest.error().message();
    files.files.push_back({Shard(shard), fs::file_size(whole), *digest, ""});
  }
  ASSERT_TRUE(WriteModelFiles(model_, files));
  const std::vector<Finding> findings = Examine(options, host_);
  ExpectFinding(findings, kFault, "model.shard-altered", Shard(7));
  for (const Finding& f : findings)
    EXPECT_TRUE(f.name != "model.shard-altered" || f.found.find(Shard(6)) == f.found.npos);
}

TEST_F(NanoFaults, ATruncatedShardIsNamed) {
  ChangeShard(4, [](std::string& bytes) { bytes.resize(bytes.size() - 1000); });
  ExpectFinding(Findings(), kFault, "model.shard-truncated", Shard(4));
}

TEST_F(NanoFaults, AShardCutInsideItsHeaderIsNamed) {
  ChangeShard(4, [](std::string& bytes) { bytes.resize(100); });
  ExpectFinding(Findings(), kFault, "model.shard-damaged", Shard(4));
}

TEST_F(NanoFaults, AShardWithABadHeaderIsNamed) {
  ChangeShard(6, [](std::string& bytes) { bytes[20] = '\x01'; });
  ExpectFinding(Findings(), kFault, "model.shard-damaged", Shard(6));
}

TEST_F(NanoFaults, AHeaderLongerThanTheFileIsNamed) {
  ChangeShard(6, [](std::string& bytes) { bytes.replace(0, 8, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8); });
  ExpectFinding(Findings(), kFault, "model.shard-damaged", Shard(6));
}

TEST_F(NanoFaults, AnUnfetchedGitLfsFileIsNamed) {
  ChangeShard(1, [](std::string& bytes) {
    bytes = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 2315512\n";
  });
  ExpectFinding(Findings(), kFault, "model.lfs-pointer", Shard(1));
}

TEST_F(NanoFaults, AnIndexThatNamesAFileWhichIsNotThere) {
  ChangeJson("model.safetensors.index.json",
             [](Json& json) { json["weight_map"].begin().value() = "model-00011-of-000010.safetensors"; });
  ExpectFinding(Findings(), kFault, "model.shard-missing", "model-00011-of-000010.safetensors");
}

TEST_F(NanoFaults, AnIndexWithoutATensor) {
  ChangeJson("model.safetensors.index.json",
             [](Json& json) { json["weight_map"].erase(json["weight_map"].begin().key()); });
  const std::vector<Finding> findings = Findings();
  EXPECT_TRUE(std::any_of(findings.begin(), findings.end(), [](const Finding& f) {
    return f.state == kFault && f.group == "model";
  })) << Problems(findings);
}

TEST_F(NanoFaults, AnIndexThatIsNoJson) {
  WriteFileBytes(Path("model.safetensors.index.json"), "{\"weight_map\": {\"a\"");
  ExpectFinding(Findings(), kFault, "model.index");
}

TEST_F(NanoFaults, AnIndexWithAPathOutOfTheFolder) {
  ChangeJson("model.safetensors.index.json",
             [](Json& json) { json["weight_map"].begin().value() = "../../etc/passwd"; });
  ExpectFinding(Findings(), kFault, "model.index", "passwd");
}

struct HostileConfig {
  const char* label;
  std::function<std::string(const Json& config)> text;
};

const HostileConfig kHostile[] = {
    {"Empty", [](const Json&) { return std::string(); }},
    {"NoJson", [](const Json&) { return std::string("not json"); }},
    {"DeepNesting", [](const Json&) { return std::string(200000, '['); }},
    {"AnArray", [](const Json&) { return std::string("[1, 2]"); }},
    {"Truncated", [](const Json& c) { return c.dump().substr(0, 700); }},
    {"Binary", [](const Json&) { return std::string(4096, '\0'); }},
    {"OtherArchitecture",
     [](const Json& c) {
       Json other = c;
       other["architectures"] = {"LlamaForCausalLM"};
       other["model_type"] = "llama";
       other.erase("text_config");
       return other.dump();
     }},
    {"HugeSizes",
     [](const Json& c) {
       Json other = c;
       for (const char* key : {"hidden_size", "num_experts", "num_hidden_layers", "vocab_size"}) {
         if (other.contains(key)) other[key] = uint64_t{1} << 62;
         if (other.contains("text_config") && other["text_config"].contains(key))
           other["text_config"][key] = uint64_t{1} << 62;
       }
       return other.dump();
     }},
    {"NegativeSizes",
     [](const Json& c) {
       Json other = c;
       for (const char* key : {"hidden_size", "num_hidden_layers"}) {
         if (other.contains(key)) other[key] = -5;
         if (other.contains("text_config") && other["text_config"].contains(key)) other["text_config"][key] = -5;
       }
       return other.dump();
     }},
    {"TextForNumbers",
     [](const Json& c) {
       Json other = c;
       (other.contains("text_config") ? other["text_config"] : other)["hidden_size"] = "\x1b[31m256";
       return other.dump();
     }},
};

class HostileConfigs : public NanoFaults, public testing::WithParamInterface<size_t> {};

TEST_P(HostileConfigs, AreReported) {
  const Json config = Json::parse(ReadFileBytes(Path("config.json")));
  WriteFileBytes(Path("config.json"), kHostile[GetParam()].text(config));
  ExpectFinding(Findings(), kFault, "model.config", "config.json");
}

INSTANTIATE_TEST_SUITE_P(All, HostileConfigs, testing::Range(size_t{0}, std::size(kHostile)),
                         [](const auto& info) { return std::string(kHostile[info.param].label); });

TEST_F(NanoFaults, ConfigOfAnotherShape) {
  ChangeJson("config.json", [](Json& json) {
    Json& text = json.contains("text_config") ? json["text_config"] : json;
    text["vocab_size"] = text["vocab_size"].get<int64_t>() * 2;
  });
  const std::vector<Finding> findings = Findings();
  EXPECT_NE(Problems(findings), "");
  EXPECT_TRUE(std::any_of(findings.begin(), findings.end(), [](const Finding& f) {
    return f.state == kFault && f.group == "model";
  })) << Problems(findings);
}

TEST_F(NanoFaults, AConfigThatIsAPipeIsReportedAndNotWaitedFor) {
  fs::remove(Path("config.json"));
  ASSERT_EQ(mkfifo(Path("config.json").c_str(), 0600), 0);
  ExpectFinding(Findings(), kFault, "model.config", "regular file");
}

TEST_F(NanoFaults, AMissingTokenizerFileIsNamed) {
  fs::remove(Path("tiktoken.model"));
  const std::vector<Finding> findings = Findings();
  ExpectFinding(findings, kFault, "tokenizer.missing", "tiktoken.model");
  ExpectFinding(findings, FindingState::kOk, "start.plan");
}

TEST_F(NanoFaults, ATokenizerFileThatIsAPipeIsNotCalledMissing) {
  fs::remove(Path("tiktoken.model"));
  ASSERT_EQ(mkfifo(Path("tiktoken.model").c_str(), 0600), 0);
  const std::vector<Finding> findings = Findings();
  ExpectFinding(findings, kFault, "tokenizer.not-a-file", "tiktoken.model");
  EXPECT_EQ(Named(findings, "tokenizer.missing").name, "");
}

TEST_F(NanoFaults, ADamagedTokenizerFileIsFound) {
  WriteFileBytes(Path("tiktoken.model"), "AAAA 0\nnot base64 at all\n");
  ExpectFinding(Findings(), kFault, "tokenizer.damaged", "tiktoken.model");
}

TEST_F(NanoFaults, AFolderThatIsNotThere) {
  DoctorOptions options = OptionsFor(root_.path() + "/nowhere");
  ExpectFinding(Examine(options, host_), kFault, "model.not-found", "nowhere");
}

TEST_F(NanoFaults, AnEmptyFolderIsADriveThatIsNotMounted) {
  fs::create_directory(root_.path() + "/empty");
  ExpectFinding(Examine(OptionsFor(root_.path() + "/empty"), host_), kFault, "model.empty", "empty");
}

TEST_F(NanoFaults, AFileThatThisUserMayNotReadIsNamedWithItsOwner) {
  host_.unreadable.insert(Path(Shard(7)));
  host_.owners[Path(Shard(7))] = 0;
  host_.modes[Path(Shard(7))] = 0600;
  ExpectFinding(Findings(), kFault, "permission.unreadable", Shard(7) + " (owner 0, mode 0600)");
}

TEST_F(NanoFaults, WeightsThatAnybodyMayChangeAreFound) {
  host_.modes[Path(Shard(7))] = 0666;
  ExpectFinding(Findings(), FindingState::kWarning, "permission.writable-by-others", Shard(7));
}

}  // namespace
}  // namespace deltafin::test
