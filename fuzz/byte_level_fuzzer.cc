// Any bytes as a tokenizer.json: refused, or a tokenizer that gives back the text it was given. The second half of the
// input is also encoded as text with a small tokenizer.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/byte_level_tokenizer.h"
#include "text/unicode_classes.h"

using namespace deltafin;

namespace {

void CheckEncoding(const ByteLevelTokenizer& tokenizer, std::string_view text) {
  std::string decoded;
  for (const TokenId id : tokenizer.Encode(text)) {
    DFIN_CHECK(tokenizer.IsText(id), "text gives ids of text");
    decoded += tokenizer.BytesOf(id);
  }
  DFIN_CHECK(decoded == ToNormalFormC(text), "encoding loses nothing");
  size_t bytes = 0;
  for (const std::string_view piece : ByteLevelPieces(text)) {
    DFIN_CHECK(!piece.empty() && piece.data() == text.data() + bytes, "pieces follow each other");
    bytes += piece.size();
  }
  DFIN_CHECK(bytes == text.size(), "every byte is in a piece");
}

ByteLevelTokenizer SmallTokenizer() {
  ByteLevelParts parts;
  for (int byte = 0; byte < 256; ++byte) parts.tokens.push_back(std::string(1, static_cast<char>(byte)));
  parts.tokens.insert(parts.tokens.end(), {"th", "the", " t", "\xC3\xA9", "aa"});
  parts.merges = {{'t', 'h', 256}, {256, 'e', 257}, {' ', 't', 258}, {0xC3, 0xA9, 259}, {'a', 'a', 260}};
  return ByteLevelTokenizer(std::move(parts));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ByteLevelTokenizer small = SmallTokenizer();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  CheckEncoding(small, input.substr(size / 2));
  Result<ByteLevelParts> parts = ParseByteLevelFile(input, "fuzz");
  if (!parts) return 0;
  for (const ByteLevelMerge& merge : parts->merges)
    DFIN_CHECK(parts->tokens[static_cast<size_t>(merge.joined)] ==
                   parts->tokens[static_cast<size_t>(merge.left)] + parts->tokens[static_cast<size_t>(merge.right)],
               "merges join what they name");
  CheckEncoding(ByteLevelTokenizer(std::move(*parts)), input.substr(0, size / 2));
  return 0;
}
