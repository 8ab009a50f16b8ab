#include "text/tokenizer.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "text/bpe.h"
#include "text/tokenizer_files.h"
#include "text/utf8.h"

namespace deltafin {

namespace {

Status CheckId(TokenId id, TokenId token_count) {
  if (id >= 0 && id < token_count) return {};
  return Fail(ErrorCode::kInvalidArgument, "token id ", id, ": expected 0 to ", token_count - 1);
}

}  // namespace

Result<Tokenizer> Tokenizer::Load(const std::string& folder) {
  DFIN_TRY(TokenizerParts parts, ReadTokenizerFiles(folder));
  auto tokenizer = Create(std::move(parts));
  if (!tokenizer) return FailWith(std::move(tokenizer), folder);
  return tokenizer;
}

Result<Tokenizer> Tokenizer::Create(TokenizerParts parts) {
  Tokenizer tokenizer;
  constexpr size_t kMostTokens = 1u << 28;
  if (parts.tokens.size() > kMostTokens)
    return Fail(ErrorCode::kCorrupt, "vocabulary: expected at most ", kMostTokens, " tokens, got ",
                parts.tokens.size());
  tokenizer.base_ = static_cast<TokenId>(parts.tokens.size());
  tokenizer.ranks_ = TokenTable(parts.tokens);
  tokenizer.vocab_size_ = parts.vocab_size.value_or(tokenizer.token_count());
  if (tokenizer.vocab_size_ < tokenizer.token_count())
    return Fail(ErrorCode::kCorrupt, "config.json: vocab_size: expected at least ", tokenizer.token_count(), " (",
                tokenizer.base_, " ranks of tiktoken.model and 256 special tokens), got ", tokenizer.vocab_size_);
  DFIN_TRY_VOID(tokenizer.SetSpecials(parts.named));
  DFIN_TRY_VOID(tokenizer.SetStopIds(parts));
  const std::optional<TokenId> pad = tokenizer.media_pad();
  if (pad && parts.media_placeholder && *pad != *parts.media_placeholder)
    return Fail(ErrorCode::kCorrupt, "config.json: media_placeholder_token_id: expected ", *pad,
                " (the id of <|media_pad|> in tokenizer_config.json), got ", *parts.media_placeholder);
  return tokenizer;
}

Status Tokenizer::SetSpecials(const std::vector<SpecialToken>& named) {
  std::vector<std::string> spellings(kSpecialSlots);
  hidden_.assign(kSpecialSlots, true);
  for (const SpecialToken& token : named) {
    if (!IsSpecial(token.id))
      return Fail(ErrorCode::kCorrupt, "tokenizer_config.json: added token ", token.id, ": expected an id from ", base_,
                  " to ", token_count() - 1);
    if (token.spelling.empty())
      return Fail(ErrorCode::kCorrupt, "tokenizer_config.json: added token ", token.id, ": the spelling is empty");
    const auto slot = static_cast<size_t>(token.id - base_);
    if (!spellings[slot].empty())
      return Fail(ErrorCode::kCorrupt, "tokenizer_config.json: added token ", token.id, " is named twice");
    spellings[slot] = token.spelling;
    hidden_[slot] = token.hidden;
  }
  for (size_t slot = 0; slot < spellings.size(); ++slot) {
    if (spellings[slot].empty()) spellings[slot] = Cat("<|reserved_token_", base_ + static_cast<TokenId>(slot), "|>");
  }
  specials_ = TokenTable(spellings);
  const auto [earlier, later] = specials_.duplicate();
  if (earlier != TokenTable::kNone)
    return Fail(ErrorCode::kCorrupt, "tokenizer_config.json: added tokens ", base_ + earlier, " and ", base_ + later,
                " are spelled the same: ", spellings[static_cast<size_t>(later)]);
  std::set<size_t, std::greater<>> lengths;
  for (const std::string& spelling : spellings) lengths.insert(spelling.size());
  special_lengths_.assign(lengths.begin(), lengths.end());
  return {};
}

Status Tokenizer::SetStopIds(const TokenizerParts& parts) {
  std::set<TokenId> stops;
  for (const TokenId id : parts.eos_ids) {
    if (id < 0 || id >= token_count())
      return Fail(ErrorCode::kCorrupt, "generation_config.json or config.json: eos_token_id ", id, ": expected 0 to ",
                  token_count() - 1);
    stops.insert(id);
  }
  for (const std::string_view spelling : {"[EOS]", "<|end_of_msg|>"}) {
    if (const std::optional<TokenId> id = SpecialId(spelling)) stops.insert(*id);
  }
  stop_ids_.assign(stops.begin(), stops.end());
  return {};
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<TokenId> ids;
  for (const std::string_view part : SplitParts(text, options.limits)) EncodePart(part, options.allow_special, &ids);
  return ids;
}

void Tokenizer::EncodePart(std::string_view part, bool allow_special, std::vector<TokenId>* ids) const {
  const auto encode_stretch = [&](std::string_view stretch) {
    for (const std::string_view piece : SplitPieces(stretch)) AppendBytePairs(ranks_, piece, ids);
  };
  size_t start = 0;
  for (size_t at = 0; allow_special && at < part.size();) {
    const auto [length, slot] = SpecialAt(part.substr(at));
    if (slot == TokenTable::kNone) {
      ++at;
      continue;
    }
    encode_stretch(part.substr(start, at - start));
    ids->push_back(base_ + slot);
    at += length;
    start = at;
  }
  encode_stretch(part.substr(start));
}

std::pair<size_t, int32_t> Tokenizer::SpecialAt(std::string_view text) const {
  for (const size_t length : special_lengths_) {
    if (length > text.size()) continue;
    const int32_t slot = specials_.Find(text.substr(0, length));
    if (slot != TokenTable::kNone) return {length, slot};
  }
  return {0, TokenTable::kNone};
}

std::string_view Tokenizer::BytesOf(TokenId id) const {
  if (id < 0 || id >= token_count()) return {};
  return id < base_ ? ranks_[static_cast<size_t>(id)] : specials_[static_cast<size_t>(id - base_)];
}

Result<std::string> Tokenizer::DecodeBytes(std::span<const TokenId> ids) const {
  std::string bytes;
  for (const TokenId id : ids) {
    DFIN_TRY_VOID(CheckId(id, token_count()));
    bytes.append(BytesOf(id));
  }
  return bytes;
}

Result<std::string> Tokenizer::Decode(std::span<const TokenId> ids) const {
  DFIN_TRY(const std::string bytes, DecodeBytes(ids));
  return ToValidUtf8(bytes);
}

Result<std::string> Tokenizer::DecodeVisible(std::span<const TokenId> ids) const {
  std::vector<TokenId> visible;
  for (const TokenId id : ids) {
    if (!IsSpecial(id) || !hidden_[static_cast<size_t>(id - base_)]) visible.push_back(id);
  }
  return Decode(visible);
}

std::optional<TokenId> Tokenizer::SpecialId(std::string_view spelling) const {
  const int32_t slot = specials_.Find(spelling);
  if (slot == TokenTable::kNone) return std::nullopt;
  return base_ + slot;
}

bool Tokenizer::IsStop(TokenId id) const { return std::ranges::binary_search(stop_ids_, id); }

Result<ChatMarkers> Tokenizer::chat_markers() const {
  ChatMarkers markers;
  const std::pair<std::string_view, TokenId*> wanted[] = {{"<|end_of_msg|>", &markers.end_of_msg},
                                                          {"<|open|>", &markers.open},
                                                          {"<|close|>", &markers.close},
                                                          {"<|sep|>", &markers.sep}};
  for (const auto& [spelling, id] : wanted) {
    const std::optional<TokenId> found = SpecialId(spelling);
    if (!found)
      return Fail(ErrorCode::kUnsupported, "tokenizer_config.json: no token ", spelling,
                  ": this model cannot chat: use raw completion");
    *id = *found;
  }
  return markers;
}

}  // namespace deltafin
