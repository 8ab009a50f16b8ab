// Any bytes as a chat request: refused or rendered, and only the trusted segments give special ids.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "small_tokenizer.h"
#include "text/chat_encoder.h"
#include "text/chat_json.h"

using namespace deltafin;

namespace {

void CheckJson(const PythonJson& json) {
  for (const PythonJsonStyle style : {PythonJsonStyle::kSpaced, PythonJsonStyle::kCompactSorted}) {
    const std::string text = DumpPythonJson(json, style);
    const auto again = ParsePythonJson(text);
    DFIN_CHECK(again.has_value() && DumpPythonJson(*again, style) == text, "what is written reads back the same");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json = ParsePythonJson(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json) return 0;
  CheckJson(*json);
  const auto request = ChatRequestFrom(*json);
  if (!request) return 0;
  const auto prompt = RenderChat(request->messages, request->options);
  if (!prompt) return 0;
  const Tokenizer& tokenizer = SmallTokenizer();
  size_t markers = 0;
  for (const ChatSegment& segment : prompt->segments) {
    DFIN_CHECK(!segment.text.empty(), "no segment is empty");
    const bool marker = segment.text == "<|open|>" || segment.text == "<|close|>" || segment.text == "<|sep|>" ||
                        segment.text == "<|end_of_msg|>";
    const bool placeholder = segment.text == "<|kimi_image_placeholder|>";
    DFIN_CHECK(!segment.trusted || marker || placeholder, "a request writes no trusted text");
    markers += segment.trusted && marker ? 1 : 0;
  }
  size_t specials = 0;
  const std::vector<TokenId> ids = EncodeSegments(tokenizer, prompt->segments).value();
  for (const TokenId id : ids) specials += tokenizer.IsSpecial(id) ? 1 : 0;
  DFIN_CHECK(specials == markers, "a special id for each marker of ours and for nothing else");
  return 0;
}
