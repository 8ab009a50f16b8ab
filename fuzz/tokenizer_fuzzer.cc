// Any bytes as text: the ids give the same bytes back, no special id without permission, and streaming equals decoding.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "small_tokenizer.h"
#include "text/stop_matcher.h"
#include "text/stream_decoder.h"
#include "text/utf8.h"

using namespace deltafin;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Tokenizer& tokenizer = SmallTokenizer();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  EncodeOptions options;
  options.limits = {5, 64};
  for (const bool allow_special : {false, true}) {
    options.allow_special = allow_special;
    const std::vector<TokenId> ids = tokenizer.Encode(text, options);
    DFIN_CHECK(tokenizer.DecodeBytes(ids).value() == text, "encoding loses nothing");
    StreamDecoder decoder;
    std::string streamed;
    for (const TokenId id : ids) {
      DFIN_CHECK(allow_special || id < tokenizer.base(), "a special id only where it is allowed");
      streamed += decoder.Append(tokenizer.BytesOf(id));
    }
    streamed += decoder.Finish();
    DFIN_CHECK(streamed == ToValidUtf8(text), "streaming equals decoding");
  }
  const size_t half = text.size() / 2;
  StopMatcher whole({std::string(text.substr(0, 3)), "ab"});
  StopMatcher cut = whole;
  const std::string expected = whole.Append(text.substr(3 < size ? 3 : size)) + whole.Finish();
  const std::string_view rest = text.substr(3 < size ? 3 : size);
  const size_t middle = half < rest.size() ? half : rest.size();
  std::string got = cut.Append(rest.substr(0, middle));
  got += cut.Append(rest.substr(middle)) + cut.Finish();
  DFIN_CHECK(got == expected && cut.matched() == whole.matched(), "cuts do not change where text stops");
  return 0;
}
