// The recorded encode cases: pieces and tiny-vocabulary ids always, Kimi K3's ids where its vocabulary is present.
#include <gtest/gtest.h>

#include <set>

#include "text/pretokenizer.h"
#include "text/stream_decoder.h"
#include "text/text_test_support.h"
#include "text/utf8.h"

namespace deltafin::test {
namespace {

const PythonJson& Input(const PythonJson& entry) { return At(entry, "input"); }
const PythonJson& Expected(const PythonJson& entry) { return At(entry, "expected"); }
bool Has(const PythonJson& object, std::string_view key) { return object.Find(key) != nullptr; }

// Which of the tests below a case belongs to.
std::string GroupOf(const PythonJson& entry) {
  if (Has(Input(entry), "check") || Has(Input(entry), "definition")) return "facts";
  if (Has(Input(entry), "direction")) return "decode";
  if (Has(Input(entry), "fragments")) return "fragments";
  return TextAt(Input(entry), "vocab");
}

std::vector<const PythonJson*> CasesOfGroup(std::string_view group) {
  std::vector<const PythonJson*> cases;
  for (const PythonJson* entry : CasesOfKind("encode")) {
    if (GroupOf(*entry) == group) cases.push_back(entry);
  }
  return cases;
}

void CheckEncodeCase(const Tokenizer& tokenizer, const PythonJson& entry) {
  const PythonJson& input = Input(entry);
  const PythonJson& expected = Expected(entry);
  const std::string text = Has(input, "text") ? TextAt(input, "text") : GeneratedText(At(input, "text_generator"));
  EncodeOptions options;
  options.allow_special = BoolAt(input, "allow_special");
  if (Has(input, "max_run_chars")) options.limits.max_run = static_cast<size_t>(IntAt(input, "max_run_chars"));
  if (Has(input, "max_slice_chars")) options.limits.max_slice = static_cast<size_t>(IntAt(input, "max_slice_chars"));
  const std::vector<TokenId> ids = tokenizer.Encode(text, options);
  if (Has(expected, "ids")) {
    EXPECT_EQ(ids, IdsOf(At(expected, "ids")));
  } else {
    EXPECT_EQ(static_cast<int64_t>(ids.size()), IntAt(expected, "ids_len"));
    EXPECT_EQ(Sha256Hex(LittleEndian(ids)), TextAt(expected, "ids_sha256_le32"));
    EXPECT_EQ(Hex64(Fnv1a64(LittleEndian(ids))), TextAt(expected, "ids_fnv1a64_le32"));
  }
  EXPECT_EQ(tokenizer.DecodeBytes(ids).value(), text);
}

TEST(EncodeCases, AllAreCovered) {
  EXPECT_EQ(AllCases().size(), 564u);
  EXPECT_EQ(CasesOfKind("encode").size(), 406u);
  EXPECT_EQ(CasesOfGroup("tiny").size(), 20u);
  EXPECT_EQ(CasesOfGroup("k3").size(), 375u);
  EXPECT_EQ(CasesOfGroup("decode").size(), 6u);
  EXPECT_EQ(CasesOfGroup("fragments").size(), 2u);
  EXPECT_EQ(CasesOfGroup("facts").size(), 3u);
}

TEST(EncodeCases, PiecesAreTheRecordedOnes) {
  size_t checked = 0;
  for (const PythonJson* entry : CasesOfKind("encode")) {
    if (!Has(Expected(*entry), "pieces")) continue;
    SCOPED_TRACE(TextAt(*entry, "name"));
    std::vector<std::string_view> expected;
    for (const PythonJson& piece : At(Expected(*entry), "pieces").items) expected.push_back(piece.text);
    EXPECT_EQ(SplitPieces(At(Input(*entry), "text").text), expected);
    ++checked;
  }
  EXPECT_EQ(checked, 258u);
}

TEST(EncodeCases, TinyVocabularyGivesTheRecordedIds) {
  for (const PythonJson* entry : CasesOfGroup("tiny")) {
    SCOPED_TRACE(TextAt(*entry, "name"));
    CheckEncodeCase(TinyTokenizer(), *entry);
  }
}

TEST(EncodeCases, TinyVocabularyHasTheDeclaredSpecials) {
  const PythonJson& definition = At(Input(CaseNamed("vocab_tiny_definition")), "definition");
  const Tokenizer& tokenizer = TinyTokenizer();
  EXPECT_EQ(tokenizer.base(), IntAt(definition, "num_base_tokens"));
  EXPECT_EQ(tokenizer.vocab_size(), IntAt(definition, "vocab_size"));
  for (const PythonJsonMember& special : At(definition, "specials").members) {
    EXPECT_EQ(tokenizer.SpecialId(special.value.text), std::stoi(special.key)) << special.value.text;
  }
}

TEST(EncodeCases, K3VocabularyGivesTheRecordedIds) {
  const Tokenizer* tokenizer = K3Tokenizer();
  if (tokenizer == nullptr) GTEST_SKIP() << kNeedsK3;
  for (const PythonJson* entry : CasesOfGroup("k3")) {
    SCOPED_TRACE(TextAt(*entry, "name"));
    CheckEncodeCase(*tokenizer, *entry);
  }
}

TEST(EncodeCases, EveryTripleOfFragmentsHashesToThePublishedValue) {
  const Tokenizer* tokenizer = K3Tokenizer();
  if (tokenizer == nullptr) GTEST_SKIP() << kNeedsK3;
  for (const PythonJson* entry : CasesOfGroup("fragments")) {
    SCOPED_TRACE(TextAt(*entry, "name"));
    EncodeOptions options;
    options.allow_special = BoolAt(Input(*entry), "allow_special");
    const std::vector<PythonJson>& fragments = At(Input(*entry), "fragments").items;
    uint64_t hash = Fnv1a64("");
    size_t total = 0;
    for (const PythonJson& left : fragments) {
      for (const PythonJson& middle : fragments) {
        for (const PythonJson& right : fragments) {
          std::vector<TokenId> ids = tokenizer->Encode(left.text + middle.text + right.text, options);
          total += ids.size();
          ids.insert(ids.begin(), static_cast<TokenId>(ids.size()));
          hash = Fnv1a64(LittleEndian(ids), hash);
        }
      }
    }
    EXPECT_EQ(static_cast<int64_t>(total), IntAt(Expected(*entry), "total_ids"));
    EXPECT_EQ(Hex64(hash), TextAt(Expected(*entry), "fnv1a64"));
  }
}

std::string Hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return hex;
}

TEST(EncodeCases, DecodingAndStreamingGiveTheRecordedTexts) {
  const Tokenizer* tokenizer = K3Tokenizer();
  if (tokenizer == nullptr) GTEST_SKIP() << kNeedsK3;
  for (const PythonJson* entry : CasesOfGroup("decode")) {
    SCOPED_TRACE(TextAt(*entry, "name"));
    const PythonJson& expected = Expected(*entry);
    const std::vector<TokenId> ids = IdsOf(At(Input(*entry), "ids"));
    EXPECT_EQ(Hex(tokenizer->DecodeBytes(ids).value()), TextAt(expected, "bytes_hex"));
    EXPECT_EQ(tokenizer->Decode(ids).value(), TextAt(expected, "text"));
    StreamDecoder decoder;
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(decoder.Append(tokenizer->BytesOf(ids[i])), At(expected, "stream_deltas").items.at(i).text);
    }
    EXPECT_EQ(decoder.Finish(), TextAt(expected, "stream_final"));
  }
}

TEST(EncodeCases, K3VocabularyHasTheRecordedFacts) {
  const Tokenizer* tokenizer = K3Tokenizer();
  if (tokenizer == nullptr) GTEST_SKIP() << kNeedsK3;
  const PythonJson& expected = Expected(CaseNamed("vocab_k3_facts"));
  EXPECT_EQ(tokenizer->base(), IntAt(expected, "lines"));
  EXPECT_EQ(tokenizer->vocab_size(), IntAt(expected, "vocab_size"));
  size_t longest = 0;
  for (TokenId id = 0; id < tokenizer->base(); ++id) longest = std::max(longest, tokenizer->BytesOf(id).size());
  EXPECT_EQ(static_cast<int64_t>(longest), IntAt(expected, "max_token_bytes"));
  for (const PythonJsonMember& token : At(expected, "token_bytes_hex").members) {
    EXPECT_EQ(Hex(tokenizer->BytesOf(std::stoi(token.key))), token.value.text) << token.key;
  }
}

}  // namespace
}  // namespace deltafin::test
