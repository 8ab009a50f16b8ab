// byte_level_tokenizer.h: text <-> ids of a byte-level byte-pair tokenizer (byte_level_file.h), as Qwen's models use
// it.
//
// Beside tokenizer.h, which is Kimi K3's: another pattern, text in normal form C, and merges that are a list of pairs
// instead of ranks of what they join to. Spellings of added tokens are ordinary text here: no text gives their ids.
// Ill-formed UTF-8 is encoded as it is, byte by byte, and not normalised. Ownership: owns its tables; movable. Thread
// rule: const after creation, any number of threads. Errors: kNotFound, kIo, those of byte_level_file.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/byte_level_file.h"

namespace deltafin {

// The pattern whose matches merging never crosses; ByteLevelPieces is a scanner for it.
inline constexpr const char* kByteLevelPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Every byte of `text` lands in exactly one piece, in order; an ill-formed byte is a character of no class. Linear.
std::vector<std::string_view> ByteLevelPieces(std::string_view text);

class ByteLevelTokenizer {
 public:
  // `path`: a tokenizer.json.
  static Result<ByteLevelTokenizer> Load(const std::string& path);
  explicit ByteLevelTokenizer(ByteLevelParts parts);

  std::vector<TokenId> Encode(std::string_view text) const;
  // The bytes that `id` stands for; "" for added tokens and for what is no id.
  std::string_view BytesOf(TokenId id) const;

  // Ids of text are below text_count(), all ids below token_count().
  TokenId text_count() const { return static_cast<TokenId>(tokens_.size()); }
  TokenId token_count() const { return token_count_; }
  // Whether an id ends text: it is none that text gives.
  bool IsText(TokenId id) const { return id >= 0 && id < text_count(); }

 private:
  friend class ByteLevelMerger;
  struct Join {
    int32_t rank = 0;
    TokenId joined = 0;
  };
  static uint64_t PairKey(TokenId left, TokenId right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }

  std::vector<std::string> tokens_;
  std::vector<TokenId> of_byte_;
  std::unordered_map<uint64_t, Join> joins_;  // by PairKey
  TokenId token_count_ = 0;
};

}  // namespace deltafin
