// Any ids as a generation: never fails, events join to the result, every text is valid UTF-8, arguments are JSON.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "small_tokenizer.h"
#include "text/response_parser.h"
#include "text/utf8.h"

using namespace deltafin;

namespace {

struct Streamed {
  std::string reasoning;
  std::string answer;
  size_t calls = 0;
};

void Collect(const std::vector<ResponseEvent>& events, Streamed* streamed) {
  for (const ResponseEvent& event : events) {
    if (event.kind == ResponseEvent::Kind::kToolCall) {
      ++streamed->calls;
      const std::string text = event.call.ArgumentsText();
      DFIN_CHECK(ToValidUtf8(text) == text, "arguments are valid UTF-8");
      DFIN_CHECK(event.call.raw_arguments || ParsePythonJson(text).has_value(), "arguments are JSON");
      continue;
    }
    DFIN_CHECK(!event.text.empty() && ToValidUtf8(event.text) == event.text, "a piece of text is valid and not empty");
    (event.kind == ResponseEvent::Kind::kReasoning ? streamed->reasoning : streamed->answer) += event.text;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Tokenizer& tokenizer = SmallTokenizer();
  const ResponseChannel start = (data[0] & 1) != 0 ? ResponseChannel::kReasoning : ResponseChannel::kAnswer;
  ResponseParser parser = ResponseParser::Create(tokenizer, start).value();
  Streamed streamed;
  // Two bytes an id; half of them near the end of the byte strings, where words and markers are.
  for (size_t i = 1; i + 1 < size; i += 2) {
    const TokenId near = tokenizer.base() - 15 + data[i + 1] % 24;
    Collect(parser.Append((data[i] & 1) != 0 ? near : data[i + 1] | (data[i] >> 6) << 8), &streamed);
  }
  Collect(parser.Finish((data[0] & 2) != 0), &streamed);
  const ParsedResponse& result = parser.result();
  DFIN_CHECK(streamed.reasoning == result.reasoning && streamed.answer == result.answer, "events join to the result");
  DFIN_CHECK(streamed.calls == result.tool_calls.size(), "each call is one event");
  return 0;
}
