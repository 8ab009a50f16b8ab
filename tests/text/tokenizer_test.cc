#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "support/test_data.h"
#include "text/stream_decoder.h"
#include "text/text_test_support.h"
#include "text/tokenizer_files.h"

namespace deltafin::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Lt;

const Tokenizer& NanoTokenizer() {
  static const Tokenizer tokenizer = Tokenizer::Load(RepoPath("models/k3-nano")).value();
  return tokenizer;
}

TEST(Tokenizer, K3ExamplesOfTheSpecificationHold) {
  const Tokenizer* tokenizer = K3Tokenizer();
  if (tokenizer == nullptr) GTEST_SKIP() << kNeedsK3;
  EXPECT_THAT(tokenizer->EncodeRaw("Hello world"), ElementsAre(19180, 2695));
  EXPECT_THAT(tokenizer->EncodeRaw("Hello, world!"), ElementsAre(19180, 11, 2695, 0));
  EXPECT_THAT(tokenizer->EncodeRaw("<|open|>"), ElementsAre(27, 91, 4454, 91, 29));
  EncodeOptions trusted;
  trusted.allow_special = true;
  EXPECT_THAT(tokenizer->Encode("<|kimi_image_placeholder|>", trusted),
              ElementsAre(27, 91, 74, 30223, 11947, 114136, 91, 29));
}

TEST(Tokenizer, SpecialSpellingsAreIdsOnlyWhenAllowed) {
  const Tokenizer& tokenizer = TinyTokenizer();
  const TokenId base = tokenizer.base();
  EncodeOptions trusted;
  trusted.allow_special = true;
  EXPECT_THAT(tokenizer.Encode("<|open|>[EOS]x<|reserved_token_329|>", trusted),
              ElementsAre(base + 3, base + 1, 'x', base + 8));
  EXPECT_THAT(tokenizer.EncodeRaw("<|open|>[EOS]<|reserved_token_329|>"), Each(Lt(base)));
  // The last slot has a name of its own, so the rule's name for it is ordinary text.
  EXPECT_THAT(tokenizer.Encode("<|reserved_token_576|>", trusted), Each(Lt(base)));
  EXPECT_THAT(tokenizer.Encode("[PAD]", trusted), ElementsAre(576));
}

TEST(Tokenizer, NoMarkerSpelledByAUserBecomesAControlId) {
  for (const Tokenizer* tokenizer : {&TinyTokenizer(), &NanoTokenizer(), K3Tokenizer()}) {
    if (tokenizer == nullptr) continue;
    std::string everything;
    for (TokenId id = tokenizer->base(); id < tokenizer->token_count(); ++id) {
      const std::string spelling(tokenizer->BytesOf(id));
      EXPECT_THAT(tokenizer->EncodeRaw(spelling), Each(Lt(tokenizer->base()))) << spelling;
      everything += spelling;
    }
    EXPECT_THAT(tokenizer->EncodeRaw(everything), Each(Lt(tokenizer->base())));
  }
}

TEST(Tokenizer, AnyBytesComeBack) {
  Random random(5);
  const std::string_view fragments[] = {
      "\xFF",     "\xE4\xBD", "\xED\xA0\x80", "\xF4\x90\x80\x80",       "\xC0\x80", "a", " ", "\n",
      "<|open|>", "é",        "字",           std::string_view("\0", 1)};
  for (int round = 0; round < 2'000; ++round) {
    std::string text;
    for (unsigned n = random.Below(20); n > 0; --n) {
      if (random.Below(2) == 0) {
        text.push_back(static_cast<char>(random.Below(256)));
      } else {
        text += fragments[random.Below(std::size(fragments))];
      }
    }
    for (const bool allow_special : {false, true}) {
      EncodeOptions options;
      options.allow_special = allow_special;
      ASSERT_EQ(NanoTokenizer().DecodeBytes(NanoTokenizer().Encode(text, options)).value(), text);
    }
  }
}

TEST(Tokenizer, HundredThousandCharacterRunsComeBack) {
  for (const std::string_view unit : {"a", "A", " ", "\n", "7", "!", "字", "\u0301", "\xFF", "<", "[", "'"}) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += unit;
    EncodeOptions trusted;
    trusted.allow_special = true;
    EXPECT_EQ(NanoTokenizer().DecodeBytes(NanoTokenizer().Encode(text, trusted)).value(), text);
  }
}

TEST(Tokenizer, DecodingRefusesIdsOutsideTheVocabulary) {
  const Tokenizer& tokenizer = TinyTokenizer();
  for (const TokenId id : {tokenizer.token_count(), -1, INT32_MAX, INT32_MIN}) {
    const auto text = tokenizer.Decode(std::vector<TokenId>{id});
    ASSERT_FALSE(text.has_value());
    EXPECT_EQ(text.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(tokenizer.BytesOf(id), "");
    EXPECT_FALSE(tokenizer.IsSpecial(id));
  }
}

TEST(Tokenizer, VisibleDecodingKeepsTheThreeStructureMarkers) {
  EncodeOptions trusted;
  trusted.allow_special = true;
  const auto ids =
      TinyTokenizer().Encode("[BOS]a<|open|>b<|close|>c<|sep|>d<|end_of_msg|><|reserved_token_329|>", trusted);
  EXPECT_EQ(TinyTokenizer().DecodeVisible(ids).value(), "a<|open|>b<|close|>c<|sep|>d");
  EXPECT_EQ(TinyTokenizer().Decode(ids).value(),
            "[BOS]a<|open|>b<|close|>c<|sep|>d<|end_of_msg|><|reserved_token_329|>");
}

TEST(Tokenizer, NanoModelFilesGiveItsIds) {
  const Tokenizer& tokenizer = NanoTokenizer();
  EXPECT_EQ(tokenizer.base(), 7936);
  EXPECT_EQ(tokenizer.token_count(), 8192);
  EXPECT_EQ(tokenizer.vocab_size(), 8192);
  EXPECT_EQ(tokenizer.SpecialId("[PAD]"), 8191);
  EXPECT_EQ(tokenizer.media_pad(), 7957);
  EXPECT_THAT(tokenizer.stop_ids(), ElementsAre(7937, 7938));
  EXPECT_TRUE(tokenizer.IsStop(7938));
  EXPECT_FALSE(tokenizer.IsStop(7939));
  const ChatMarkers markers = tokenizer.chat_markers().value();
  EXPECT_EQ(markers.end_of_msg, 7938);
  EXPECT_EQ(markers.open, 7939);
  EXPECT_EQ(markers.close, 7940);
  EXPECT_EQ(markers.sep, 7941);
}

// --- what is refused -----------------------------------------------------------------------------------------------

TokenizerParts SmallParts() {
  TokenizerParts parts;
  for (int byte = 0; byte < 256; ++byte) parts.tokens.emplace_back(1, static_cast<char>(byte));
  parts.named = {{256, "[BOS]", true},        {257, "[EOS]", true},      {258, "<|end_of_msg|>", true},
                 {259, "<|open|>", false},    {260, "<|close|>", false}, {261, "<|sep|>", false},
                 {300, "<|media_pad|>", true}};
  return parts;
}

void ExpectRefused(TokenizerParts parts, const std::string& reason) {
  const auto tokenizer = Tokenizer::Create(std::move(parts));
  ASSERT_FALSE(tokenizer.has_value()) << reason;
  EXPECT_EQ(tokenizer.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(tokenizer.error().message(), HasSubstr(reason));
}

TEST(TokenizerParts, ContradictionsAreRefused) {
  ASSERT_TRUE(Tokenizer::Create(SmallParts()).has_value());
  TokenizerParts parts = SmallParts();
  parts.named.push_back({512, "<|late|>", true});
  ExpectRefused(parts, "added token 512: expected an id from 256 to 511");
  parts = SmallParts();
  parts.named.push_back({255, "<|early|>", true});
  ExpectRefused(parts, "added token 255: expected an id");
  parts = SmallParts();
  parts.named.push_back({310, "<|open|>", true});
  ExpectRefused(parts, "spelled the same");
  parts = SmallParts();
  parts.named.push_back({310, "<|reserved_token_311|>", true});
  ExpectRefused(parts, "spelled the same");
  parts = SmallParts();
  parts.named.push_back({259, "<|other|>", true});
  ExpectRefused(parts, "named twice");
  parts = SmallParts();
  parts.named.push_back({310, "", true});
  ExpectRefused(parts, "the spelling is empty");
  parts = SmallParts();
  parts.vocab_size = 511;
  ExpectRefused(parts, "vocab_size: expected at least 512");
  parts = SmallParts();
  parts.media_placeholder = 299;
  ExpectRefused(parts, "media_placeholder_token_id: expected 300");
}

TEST(TokenizerParts, PaddingRowsBeyondTheSpecialsAreAllowed) {
  TokenizerParts parts = SmallParts();
  parts.vocab_size = 1024;
  const Tokenizer tokenizer = Tokenizer::Create(std::move(parts)).value();
  EXPECT_EQ(tokenizer.vocab_size(), 1024);
  EXPECT_EQ(tokenizer.token_count(), 512);
}

TEST(TokenizerParts, StopIdsAreThoseOfTheFilesAndTheTwoEndTokens) {
  TokenizerParts parts = SmallParts();
  parts.eos_ids = {300, 257};
  EXPECT_THAT(Tokenizer::Create(parts).value().stop_ids(), ElementsAre(257, 258, 300));
  parts.eos_ids = {512};
  EXPECT_FALSE(Tokenizer::Create(parts).has_value());
}

TEST(TokenizerParts, AModelWithoutMarkersCannotChat) {
  TokenizerParts parts = SmallParts();
  std::erase_if(parts.named, [](const SpecialToken& token) { return token.spelling == "<|sep|>"; });
  const auto markers = Tokenizer::Create(std::move(parts)).value().chat_markers();
  ASSERT_FALSE(markers.has_value());
  EXPECT_EQ(markers.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(markers.error().message(), HasSubstr("<|sep|>"));
}

// --- files ---------------------------------------------------------------------------------------------------------

// A copy of k3-nano's small files that a test may damage.
class TokenizerFolder : public testing::Test {
 protected:
  TokenizerFolder() {
    for (const char* name : kNames) {
      std::filesystem::copy_file(RepoPath("models/k3-nano/") + name, folder_.path() + "/" + name);
    }
  }
  void Write(const std::string& name, const std::string& text) { std::ofstream(folder_.path() + "/" + name) << text; }
  void ExpectLoadFails(ErrorCode code, const std::string& name) {
    const auto tokenizer = Tokenizer::Load(folder_.path());
    ASSERT_FALSE(tokenizer.has_value()) << name;
    EXPECT_EQ(tokenizer.error().code(), code) << tokenizer.error().message();
    EXPECT_THAT(tokenizer.error().message(), HasSubstr(name));
  }

  static constexpr const char* kNames[] = {"tiktoken.model", "tokenizer_config.json", "config.json",
                                           "generation_config.json"};
  TempFolder folder_;
};

TEST_F(TokenizerFolder, AMissingFileIsNamed) {
  ASSERT_TRUE(Tokenizer::Load(folder_.path()).has_value());
  for (const char* name : {"tiktoken.model", "tokenizer_config.json", "config.json"}) {
    std::filesystem::rename(folder_.path() + "/" + name, folder_.path() + "/away");
    ExpectLoadFails(ErrorCode::kNotFound, name);
    std::filesystem::rename(folder_.path() + "/away", folder_.path() + "/" + name);
  }
}

TEST_F(TokenizerFolder, AGitLfsPointerSaysWhatToDo) {
  for (const char* name : kNames) {
    Write(name, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
    ExpectLoadFails(ErrorCode::kCorrupt,
                    std::string(name) + ": expected the file itself, got a git-lfs pointer to it");
    std::filesystem::copy_file(RepoPath("models/k3-nano/") + name, folder_.path() + "/" + name,
                               std::filesystem::copy_options::overwrite_existing);
  }
}

TEST_F(TokenizerFolder, FoldersPipesAndDevicesInPlaceOfFilesAreRefusedWithoutWaiting) {
  for (const char* name : kNames) {
    const std::string path = folder_.path() + "/" + name;
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    ExpectLoadFails(ErrorCode::kCorrupt, std::string(name) + ": expected a regular file");
    std::filesystem::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    ExpectLoadFails(ErrorCode::kCorrupt, std::string(name) + ": expected a regular file");
    std::filesystem::remove(path);
    std::filesystem::create_symlink("/dev/zero", path);
    ExpectLoadFails(ErrorCode::kCorrupt, std::string(name) + ": expected a regular file");
    std::filesystem::remove(path);
    std::filesystem::copy_file(RepoPath("models/k3-nano/") + name, path);
  }
}

TEST_F(TokenizerFolder, BrokenFilesAreNamed) {
  for (const char* name : kNames) {
    for (const char* text : {"", "{", "[]", "nonsense"}) {
      Write(name, text);
      ExpectLoadFails(ErrorCode::kCorrupt, name);
    }
    std::filesystem::copy_file(RepoPath("models/k3-nano/") + name, folder_.path() + "/" + name,
                               std::filesystem::copy_options::overwrite_existing);
  }
  Write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "y"}}})");
  ExpectLoadFails(ErrorCode::kCorrupt, "tokenizer_config.json");
  Write("tokenizer_config.json", R"({"added_tokens_decoder": {"7936": {}}})");
  ExpectLoadFails(ErrorCode::kCorrupt, "tokenizer_config.json");
}

TEST_F(TokenizerFolder, StopIdsComeFromGenerationConfigElseFromConfigAlsoNested) {
  Write("generation_config.json", R"({"eos_token_id": [8000, 8001]})");
  EXPECT_THAT(Tokenizer::Load(folder_.path()).value().stop_ids(), ElementsAre(7937, 7938, 8000, 8001));
  std::filesystem::remove(folder_.path() + "/generation_config.json");
  EXPECT_THAT(Tokenizer::Load(folder_.path()).value().stop_ids(), ElementsAre(7937, 7938));
  Write("config.json", R"({"text_config": {"eos_token_id": 8002, "vocab_size": 9000}})");
  EXPECT_THAT(Tokenizer::Load(folder_.path()).value().stop_ids(), ElementsAre(7937, 7938, 8002));
  EXPECT_EQ(Tokenizer::Load(folder_.path()).value().vocab_size(), 9000);
  for (const char* eos : {"-1", "1.5", "\"7938\"", "[7938, null]", "99999999999999999999"}) {
    Write("config.json", std::string(R"({"eos_token_id": )") + eos + "}");
    ExpectLoadFails(ErrorCode::kCorrupt, "config.json: eos_token_id");
  }
}

}  // namespace
}  // namespace deltafin::test
