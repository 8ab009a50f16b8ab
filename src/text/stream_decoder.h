// stream_decoder.h: the bytes of one token after another -> pieces of valid UTF-8.
//
// A token may end in the middle of a character; such a tail (at most three bytes) waits for the next token. What can
// never become a character turns into U+FFFD at once, one per maximal ill-formed subpart. All returned pieces, joined,
// equal ToValidUtf8() of all bytes, joined. Ownership: a value. Thread rule: one thread at a time.
//
//   StreamDecoder decoder;
//   for (TokenId id : generated) Print(decoder.Append(tokenizer.BytesOf(id)));
//   Print(decoder.Finish());
#pragma once

#include <string>
#include <string_view>

namespace deltafin {

class StreamDecoder {
 public:
  // The text that is certain now; may be empty.
  std::string Append(std::string_view bytes);

  // An unfinished character becomes U+FFFD. The decoder is empty afterwards and may be used again.
  std::string Finish();

 private:
  std::string pending_;  // a proper prefix of one well-formed sequence
};

}  // namespace deltafin
