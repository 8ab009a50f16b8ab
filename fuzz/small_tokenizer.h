// small_tokenizer.h: a vocabulary for fuzzers: the single bytes, a few words, and the chat's special tokens.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace deltafin {

inline const Tokenizer& SmallTokenizer() {
  static const Tokenizer tokenizer = [] {
    TokenizerParts parts;
    for (int byte = 0; byte < 256; ++byte) parts.tokens.emplace_back(1, static_cast<char>(byte));
    for (const char* word :
         {"th", "in", "think", "response", "tools", "call tool=\"f\"", "argument key=\"k\" type=\"number\"", "argument",
          "json", "message", "call", "  ", "\n\n", "你好", "\xF0\x9F"}) {
      parts.tokens.emplace_back(word);
    }
    const auto base = static_cast<TokenId>(parts.tokens.size());
    const std::pair<TokenId, const char*> names[] = {{0, "[BOS]"},    {1, "[EOS]"},     {2, "<|end_of_msg|>"},
                                                     {3, "<|open|>"}, {4, "<|close|>"}, {5, "<|sep|>"},
                                                     {255, "[PAD]"}};
    for (const auto& [offset, spelling] : names) parts.named.push_back({base + offset, spelling, true});
    return Tokenizer::Create(std::move(parts)).value();
  }();
  return tokenizer;
}

}  // namespace deltafin
