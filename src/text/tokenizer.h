// tokenizer.h: text <-> token ids, for Kimi K3 and every model with the same file layout.
//
// The vocabulary is `base` byte strings (id = rank) followed by exactly 256 special tokens. A special token is one id
// that ordinary text can never produce: only Encode() with allow_special looks for spellings. What the ids mean in a
// chat is chat_encoder.h and response_parser.h; this class knows no roles and adds no begin or end token. Any bytes may
// be encoded, also ill-formed UTF-8; decoding the ids gives the same bytes back. Ownership: owns its tables; movable.
// Thread rule: const after creation, any number of threads. Errors: kNotFound (a missing file, named), kCorrupt (files
// that contradict the layout, git-lfs pointers).
//
//   DFIN_TRY(const Tokenizer tokenizer, Tokenizer::Load(folder));
//   std::vector<TokenId> ids = tokenizer.EncodeRaw("Once upon a time");
//   StreamDecoder decoder;                                      // stream_decoder.h
//   for (TokenId id : ids) Print(decoder.Append(tokenizer.BytesOf(id)));
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/pretokenizer.h"
#include "text/token_table.h"

namespace deltafin {

constexpr TokenId kSpecialSlots = 256;

// A special token that the model's files name; the other slots are called <|reserved_token_ID|>.
struct SpecialToken {
  TokenId id = 0;  // absolute
  std::string spelling;
  bool hidden = true;  // "special" in tokenizer_config.json: a decode that skips specials drops it
};

// What the files say, before it is checked. tokenizer_files.h reads it; tests make their own.
struct TokenizerParts {
  std::vector<std::string> tokens;  // by rank; as ParseRankFile gives them, with all single bytes
  std::vector<SpecialToken> named;
  std::vector<TokenId> eos_ids;              // of generation_config.json, else config.json
  std::optional<int64_t> vocab_size;         // rows of the embedding; at least base + 256
  std::optional<TokenId> media_placeholder;  // must be <|media_pad|> where both exist
};

// The four ids that structure a chat.
struct ChatMarkers {
  TokenId end_of_msg = 0;
  TokenId open = 0;
  TokenId close = 0;
  TokenId sep = 0;
};

struct EncodeOptions {
  bool allow_special = false;  // true only for text that no user can influence
  SplitLimits limits;
};

class Tokenizer {
 public:
  // Reads tiktoken.model, tokenizer_config.json, config.json and, if present, generation_config.json.
  static Result<Tokenizer> Load(const std::string& folder);
  static Result<Tokenizer> Create(TokenizerParts parts);

  // Special spellings are ordinary text.
  std::vector<TokenId> EncodeRaw(std::string_view text) const { return Encode(text, EncodeOptions()); }
  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options) const;

  // The bytes that `id` stands for, a special token's being its spelling; "" for an id outside the vocabulary.
  std::string_view BytesOf(TokenId id) const;
  // kInvalidArgument for an id outside the vocabulary.
  Result<std::string> DecodeBytes(std::span<const TokenId> ids) const;
  // The same with ill-formed UTF-8 replaced by U+FFFD.
  Result<std::string> Decode(std::span<const TokenId> ids) const;
  // Decode() without the special tokens that the files flag; the chat's open, close and sep markers are not flagged.
  Result<std::string> DecodeVisible(std::span<const TokenId> ids) const;

  // Ids below base() are byte strings; base() .. token_count() - 1 are specials.
  TokenId base() const { return base_; }
  TokenId token_count() const { return base_ + kSpecialSlots; }
  // Rows of the model's embedding and output matrices. Rows from token_count() on are padding: never sample them.
  int64_t vocab_size() const { return vocab_size_; }
  bool IsSpecial(TokenId id) const { return id >= base_ && id < token_count(); }
  std::optional<TokenId> SpecialId(std::string_view spelling) const;

  // The ids that end a generation: those of the files, [EOS], and <|end_of_msg|>. Sorted.
  std::span<const TokenId> stop_ids() const { return stop_ids_; }
  bool IsStop(TokenId id) const;
  // kUnsupported when the model names no chat markers: raw completion only.
  Result<ChatMarkers> chat_markers() const;
  // Where image embeddings go; nothing for a model without images.
  std::optional<TokenId> media_pad() const { return SpecialId("<|media_pad|>"); }

 private:
  Tokenizer() = default;
  Status SetSpecials(const std::vector<SpecialToken>& named);
  Status SetStopIds(const TokenizerParts& parts);
  void EncodePart(std::string_view part, bool allow_special, std::vector<TokenId>* ids) const;
  // Length of the special spelling that `text` starts with and its slot; slot TokenTable::kNone if there is none.
  std::pair<size_t, int32_t> SpecialAt(std::string_view text) const;

  TokenId base_ = 0;
  int64_t vocab_size_ = 0;
  TokenTable ranks_;
  TokenTable specials_;                  // by slot
  std::vector<size_t> special_lengths_;  // each length that occurs, longest first
  std::vector<bool> hidden_;             // by slot
  std::vector<TokenId> stop_ids_;
};

}  // namespace deltafin
