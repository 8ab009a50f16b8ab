// The recorded conversations: text, segments and tiny-vocabulary ids always, Kimi K3's ids where its vocabulary is
// present.
#include <gtest/gtest.h>

#include "text/chat_encoder.h"
#include "text/chat_json.h"
#include "text/text_test_support.h"

namespace deltafin::test {
namespace {

const PythonJson* Find(const PythonJson& entry, std::string_view key) { return At(entry, "expected").Find(key); }

Result<ChatPrompt> Render(const PythonJson& entry) {
  PythonJson input = At(entry, "input");
  for (PythonJsonMember& member : input.members) {
    if (member.key != "messages") continue;
    for (PythonJson& message : member.value.items) {
      const PythonJson* generator = message.Find("content_generator");
      if (generator != nullptr) message.members.push_back({"content", PythonJson::String(GeneratedText(*generator))});
    }
  }
  DFIN_TRY(ChatRequest request, ChatRequestFrom(input));
  const PythonJson& prompts = At(input, "image_prompts");
  if (prompts.is_array()) {
    request.options.image_prompts.emplace();
    for (const PythonJson& prompt : prompts.items) request.options.image_prompts->push_back(prompt.text);
  }
  return RenderChat(request.messages, request.options);
}

// FNV-1a 64 over one little-endian u32 per segment: its length in bytes, plus 2^31 if trusted.
std::string LayoutHash(const std::vector<ChatSegment>& segments) {
  std::vector<TokenId> layout;
  for (const ChatSegment& segment : segments) {
    const uint32_t trusted = segment.trusted ? 0x80000000u : 0;
    layout.push_back(static_cast<TokenId>(static_cast<uint32_t>(segment.text.size()) + trusted));
  }
  return Hex64(Fnv1a64(LittleEndian(layout)));
}

TEST(RenderCases, TextAndSegmentsAreTheRecordedOnes) {
  size_t errors = 0;
  size_t rendered = 0;
  for (const PythonJson* entry : CasesOfKind("render")) {
    SCOPED_TRACE(TextAt(*entry, "name"));
    const Result<ChatPrompt> prompt = Render(*entry);
    if (Find(*entry, "error") != nullptr) {
      ASSERT_FALSE(prompt.has_value());
      EXPECT_EQ(prompt.error().code(), ErrorCode::kInvalidArgument) << prompt.error().message();
      ++errors;
      continue;
    }
    ASSERT_TRUE(prompt.has_value()) << prompt.error().message();
    const PythonJson* text = Find(*entry, "text");
    if (text != nullptr) {
      EXPECT_EQ(JoinSegments(prompt->segments), text->text);
    }
    EXPECT_EQ(static_cast<int64_t>(prompt->segments.size()), IntAt(At(*entry, "expected"), "segments"));
    EXPECT_EQ(LayoutHash(prompt->segments), TextAt(At(*entry, "expected"), "segments_fnv1a64"));
    ++rendered;
  }
  EXPECT_EQ(errors, 6u);
  EXPECT_EQ(rendered, 117u);
}

TEST(RenderCases, TinyVocabularyGivesTheRecordedIds) {
  size_t checked = 0;
  for (const PythonJson* entry : CasesOfKind("render")) {
    if (Find(*entry, "tiny_n_ids") == nullptr) continue;
    SCOPED_TRACE(TextAt(*entry, "name"));
    const auto ids = EncodeSegments(TinyTokenizer(), Render(*entry).value().segments);
    EXPECT_EQ(static_cast<int64_t>(ids->size()), IntAt(At(*entry, "expected"), "tiny_n_ids"));
    EXPECT_EQ(Sha256Hex(LittleEndian(*ids)), TextAt(At(*entry, "expected"), "tiny_ids_sha256_le32"));
    ++checked;
  }
  EXPECT_EQ(checked, 109u);
}

TEST(RenderCases, K3VocabularyGivesTheRecordedIds) {
  const Tokenizer* tokenizer = K3Tokenizer();
  if (tokenizer == nullptr) GTEST_SKIP() << kNeedsK3;
  size_t checked = 0;
  for (const PythonJson* entry : CasesOfKind("render")) {
    if (Find(*entry, "error") != nullptr) continue;
    SCOPED_TRACE(TextAt(*entry, "name"));
    const auto ids = EncodeSegments(*tokenizer, Render(*entry).value().segments);
    EXPECT_EQ(static_cast<int64_t>(ids->size()), IntAt(At(*entry, "expected"), "n_ids"));
    if (const PythonJson* expected = Find(*entry, "ids")) {
      EXPECT_EQ(*ids, IdsOf(*expected));
    } else {
      EXPECT_EQ(Sha256Hex(LittleEndian(*ids)), TextAt(At(*entry, "expected"), "ids_sha256_le32"));
      EXPECT_EQ(Hex64(Fnv1a64(LittleEndian(*ids))), TextAt(At(*entry, "expected"), "ids_fnv1a64_le32"));
    }
    ++checked;
  }
  EXPECT_EQ(checked, 117u);
}

// The vendor's service leaves the last three ids of the generation prompt out of its count, and nothing of a partial
// one.
TEST(RenderCases, VendorCountsAgree) {
  const Tokenizer* tokenizer = K3Tokenizer();
  if (tokenizer == nullptr) GTEST_SKIP() << kNeedsK3;
  size_t checked = 0;
  for (const PythonJson* entry : CasesOfKind("render")) {
    const PythonJson* count = Find(*entry, "vendor_prompt_tokens");
    if (count == nullptr) continue;
    SCOPED_TRACE(TextAt(*entry, "name"));
    const std::vector<PythonJson>& messages = At(At(*entry, "input"), "messages").items;
    const bool partial = messages.back().Find("partial") != nullptr;
    const auto ids = EncodeSegments(*tokenizer, Render(*entry).value().segments);
    EXPECT_EQ(static_cast<int64_t>(ids->size()) - (partial ? 0 : 3), count->AsInt64());
    ++checked;
  }
  EXPECT_EQ(checked, 55u);
}

}  // namespace
}  // namespace deltafin::test
