// The list of checksums that setup leaves in a model folder, and the one that a hub's cache is.
#include "checkpoint/model_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"
#include "support/test_data.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;

const std::string kSha(64, 'a');
const std::string kGit(40, 'b');

ModelFiles Example() {
  return {"someone/model",
          std::string(40, '1'),
          {{"config.json", 12, "", kGit},
           {"model-1.safetensors", uint64_t{16} << 30, kSha, ""},
           {"some folder/a b.json", 0, "", kGit}}};
}

void WriteFileBytes(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// `body` with its checksum made right.
std::string Sealed(const std::string& body) { return body + "end " + ToHex(Hash64(body)) + "\n"; }

TEST(ModelFiles, AreLinesOfTextThatAreReadAsTheyWereWritten) {
  const std::string text = Example().ToText();
  EXPECT_EQ(text.substr(0, text.find("end ")),
            "deltafin-files 1\nrepository someone/model\ncommit " + std::string(40, '1') + "\ngit_sha1 " + kGit +
                " 12 config.json\nsha256 " + kSha + " 17179869184 model-1.safetensors\ngit_sha1 " + kGit +
                " 0 some folder/a b.json\n");
  const auto read = ModelFiles::FromText(text, "text");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_TRUE(*read == Example());
  ASSERT_NE(read->Find("model-1.safetensors"), nullptr);
  EXPECT_EQ(read->Find("model-1.safetensors")->sha256, kSha);
  EXPECT_EQ(read->Find("model-2.safetensors"), nullptr);
}

TEST(ModelFiles, AreRefusedWhenTornOrWhenAnyBitIsWrong) {
  const std::string text = Example().ToText();
  for (size_t size = 0; size < text.size(); ++size) EXPECT_FALSE(ModelFiles::FromText(text.substr(0, size), "torn"));
  for (size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    EXPECT_FALSE(ModelFiles::FromText(damaged, "damaged")) << at;
  }
}

TEST(ModelFiles, NamesThatLeadOutOfTheFolderAreRefused) {
  for (const char* name : {"", "../x", "/x", "a/../b", "a//b", "./a", "a/", "a\\b", "a\tb", ".."})
    EXPECT_FALSE(ModelFiles::FromText(Sealed("deltafin-files 1\nsha256 " + kSha + " 1 " + name + "\n"), "bad")) << name;
  EXPECT_TRUE(ModelFiles::FromText(Sealed("deltafin-files 1\nsha256 " + kSha + " 1 a..b\n"), "good"));
}

TEST(ModelFiles, ChecksumsSizesOrderAndVersionAreChecked) {
  for (const std::string& line :
       {"sha256 " + kGit + " 1 a", "git_sha1 " + kSha + " 1 a", "md5 " + kSha + " 1 a", "sha256 " + kSha + " -1 a",
        "sha256 " + kSha + " 99999999999999999999 a", "sha256 " + kSha + " 1125899906842625 a",
        "sha256 " + kSha + " 1x a", "sha256 " + kSha + " 1 b\nsha256 " + kSha + " 1 a",
        "sha256 " + kSha + " 1 a\nsha256 " + kSha + " 1 a", "sha256 " + kSha + " 1 a\ncommit x"})
    EXPECT_FALSE(ModelFiles::FromText(Sealed("deltafin-files 1\n" + line + "\n"), "bad")) << line;
  const auto newer = ModelFiles::FromText(Sealed("deltafin-files 2\n"), "newer");
  ASSERT_FALSE(newer);
  EXPECT_EQ(newer.error().code(), ErrorCode::kUnsupported);
}

TEST(ModelFiles, AreFoundInTheFolderElseInTheLinksOfAHubsCache) {
  const TempFolder folder;
  EXPECT_FALSE(KnownModelFiles(folder.path())->has_value());
  const fs::path repo = fs::path(folder.path()) / "models--someone--model";
  const fs::path snapshot = repo / "snapshots" / std::string(40, 'c');
  fs::create_directories(snapshot);
  fs::create_directories(repo / "blobs");
  WriteFileBytes(repo / "blobs" / kSha, "12345");
  fs::create_symlink("../../blobs/" + kSha, snapshot / "model-1.safetensors");
  fs::create_symlink("../../blobs/" + kGit, snapshot / "config.json");  // its blob is missing
  WriteFileBytes(snapshot / "mine.txt", "no link");
  const auto links = KnownModelFiles(snapshot.string());
  ASSERT_TRUE(links && links->has_value());
  const ModelFiles expected{
      "", std::string(40, 'c'), {{"config.json", 0, "", kGit}, {"model-1.safetensors", 5, kSha, ""}}};
  EXPECT_TRUE(**links == expected) << (*links)->ToText();
  ASSERT_TRUE(WriteModelFiles(snapshot.string(), Example()));
  const auto listed = KnownModelFiles(snapshot.string());
  ASSERT_TRUE(listed && listed->has_value());
  EXPECT_TRUE(**listed == Example());
}

}  // namespace
}  // namespace deltafin::test
