// The recorded generations: whole and streamed, with Kimi K3's ids and with the same turns spelled in the tiny
// vocabulary.
#include <gtest/gtest.h>

#include "text/response_parser.h"
#include "text/text_test_support.h"

namespace deltafin::test {
namespace {

struct Parsed {
  ParsedResponse result;
  std::string streamed_reasoning;
  std::string streamed_answer;
  std::vector<ParsedToolCall> streamed_calls;
};

void Collect(const std::vector<ResponseEvent>& events, Parsed* parsed) {
  for (const ResponseEvent& event : events) {
    if (event.kind == ResponseEvent::Kind::kToolCall) {
      parsed->streamed_calls.push_back(event.call);
      continue;
    }
    EXPECT_FALSE(event.text.empty());
    (event.kind == ResponseEvent::Kind::kReasoning ? parsed->streamed_reasoning : parsed->streamed_answer) +=
        event.text;
  }
}

Parsed Parse(const Tokenizer& tokenizer, const PythonJson& entry, std::span<const TokenId> ids) {
  const PythonJson& input = At(entry, "input");
  const bool think = TextAt(input, "start_channel") == "think";
  ResponseParser parser =
      ResponseParser::Create(tokenizer, think ? ResponseChannel::kReasoning : ResponseChannel::kAnswer).value();
  Parsed parsed;
  for (const TokenId id : ids) Collect(parser.Append(id), &parsed);
  Collect(parser.Finish(TextAt(input, "finish") == "length"), &parsed);
  parsed.result = parser.result();
  return parsed;
}

std::string TextOrNull(const PythonJson& value) { return value.is_null() ? "" : value.text; }

void CheckCase(const PythonJson& entry, const Parsed& parsed) {
  const PythonJson& expected = At(entry, "expected");
  EXPECT_EQ(parsed.result.reasoning, TextOrNull(At(expected, "reasoning_content")));
  EXPECT_EQ(parsed.result.answer, TextOrNull(At(expected, "content")));
  EXPECT_EQ(ToString(parsed.result.finish_reason), TextAt(expected, "finish_reason"));
  const std::vector<PythonJson>& calls = At(expected, "tool_calls").items;
  ASSERT_EQ(parsed.result.tool_calls.size(), calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(parsed.result.tool_calls[i].name, TextAt(calls[i], "name"));
    const PythonJson& arguments = At(calls[i], "arguments");
    const std::string text =
        arguments.is_string() ? arguments.text : DumpPythonJson(arguments, PythonJsonStyle::kSpaced);
    EXPECT_EQ(parsed.result.tool_calls[i].ArgumentsText(), text);
    EXPECT_EQ(parsed.result.tool_calls[i].raw_arguments.has_value(), arguments.is_string());
  }
  EXPECT_EQ(parsed.streamed_reasoning, parsed.result.reasoning);
  EXPECT_EQ(parsed.streamed_answer, parsed.result.answer);
  ASSERT_EQ(parsed.streamed_calls.size(), calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(parsed.streamed_calls[i].ArgumentsText(), parsed.result.tool_calls[i].ArgumentsText());
  }
}

TEST(ParseCases, K3IdsGiveTheRecordedResults) {
  const Tokenizer* tokenizer = K3Tokenizer();
  if (tokenizer == nullptr) GTEST_SKIP() << kNeedsK3;
  for (const PythonJson* entry : CasesOfKind("parse")) {
    SCOPED_TRACE(TextAt(*entry, "name"));
    CheckCase(*entry, Parse(*tokenizer, *entry, IdsOf(At(At(*entry, "input"), "token_ids"))));
  }
}

// The same turns one byte at a time: ordinary ids become the single-byte tokens of the text they stand for. The
// recorded ids say only which spellings are real markers; `decoded` says what the rest spells.
std::vector<TokenId> SpellInBytes(const PythonJson& input) {
  constexpr TokenId kK3Base = 163584;
  const Tokenizer& tiny = TinyTokenizer();
  const std::string text = TextAt(input, "decoded");
  std::vector<TokenId> ids;
  size_t at = 0;
  const auto spell_until = [&](size_t end) {
    for (; at < end; ++at) ids.push_back(static_cast<TokenId>(static_cast<unsigned char>(text[at])));
  };
  for (const TokenId id : IdsOf(At(input, "token_ids"))) {
    if (id < kK3Base) continue;
    const TokenId special = id - kK3Base + tiny.base();
    const std::string_view spelling = tiny.BytesOf(special);
    spell_until(std::min(text.find(spelling, at), text.size()));
    ids.push_back(special);
    at += spelling.size();
  }
  spell_until(text.size());
  return ids;
}

TEST(ParseCases, SingleByteIdsGiveTheRecordedResults) {
  size_t checked = 0;
  for (const PythonJson* entry : CasesOfKind("parse")) {
    SCOPED_TRACE(TextAt(*entry, "name"));
    const std::vector<TokenId> ids = SpellInBytes(At(*entry, "input"));
    // A turn that quotes a marker, or is cut inside a character, cannot be respelled from its text.
    const std::string text = TinyTokenizer().DecodeBytes(ids).value();
    size_t markers = 0;
    for (size_t at = text.find("<|"); at != std::string::npos; at = text.find("<|", at + 1)) ++markers;
    size_t specials = 0;
    for (const TokenId id : ids) specials += TinyTokenizer().IsSpecial(id) ? 1 : 0;
    if (markers != specials || text.find("\xEF\xBF\xBD") != std::string::npos) continue;
    CheckCase(*entry, Parse(TinyTokenizer(), *entry, ids));
    ++checked;
  }
  EXPECT_EQ(CasesOfKind("parse").size(), 35u);
  EXPECT_GE(checked, 25u);
}

}  // namespace
}  // namespace deltafin::test
