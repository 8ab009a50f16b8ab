#include "text/tokenizer_files.h"

#include <charconv>
#include <limits>
#include <utility>

#include "base/model_file.h"
#include "text/rank_file.h"

namespace deltafin {

namespace {

constexpr uint64_t kMostFileBytes = 256u << 20;

Result<PythonJson> ReadObject(const std::string& path) {
  DFIN_TRY(const std::string text, ReadModelFile(path, kMostFileBytes));
  auto json = ParsePythonJson(text);
  if (!json) return FailWith(std::move(json), path);
  if (!json->is_object()) return Fail(ErrorCode::kCorrupt, path, ": expected a JSON object");
  return json;
}

std::optional<TokenId> AsTokenId(const PythonJson& value) {
  const std::optional<int64_t> id = value.AsInt64();
  if (!id || *id < 0 || *id > std::numeric_limits<TokenId>::max()) return std::nullopt;
  return static_cast<TokenId>(*id);
}

// A member of config.json, or of its text_config; null counts as absent.
const PythonJson* FindSetting(const PythonJson& config, std::string_view key) {
  const PythonJson* value = config.Find(key);
  if (value != nullptr && !value->is_null()) return value;
  const PythonJson* text_config = config.Find("text_config");
  value = text_config == nullptr ? nullptr : text_config->Find(key);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

Status ReadConfig(const PythonJson& config, TokenizerParts* parts) {
  if (const PythonJson* size = FindSetting(config, "vocab_size")) {
    parts->vocab_size = size->AsInt64();
    if (!parts->vocab_size) return Fail(ErrorCode::kCorrupt, "vocab_size: expected an integer");
  }
  if (const PythonJson* placeholder = FindSetting(config, "media_placeholder_token_id")) {
    parts->media_placeholder = AsTokenId(*placeholder);
    if (!parts->media_placeholder) return Fail(ErrorCode::kCorrupt, "media_placeholder_token_id: expected a token id");
  }
  DFIN_TRY(parts->eos_ids, EosIdsFrom(config));
  return {};
}

}  // namespace

Result<std::vector<SpecialToken>> SpecialTokensFrom(const PythonJson& tokenizer_config) {
  std::vector<SpecialToken> tokens;
  const PythonJson* added = tokenizer_config.Find("added_tokens_decoder");
  if (added == nullptr || !added->is_object())
    return Fail(ErrorCode::kCorrupt, "added_tokens_decoder: expected an object from token ids to tokens");
  for (const auto& [key, value] : added->members) {
    SpecialToken token;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (error != std::errc() || end != key.data() + key.size() || token.id < 0)
      return Fail(ErrorCode::kCorrupt, "added_tokens_decoder: expected a token id, got \"", key, "\"");
    const PythonJson* content = value.Find("content");
    if (content == nullptr || !content->is_string())
      return Fail(ErrorCode::kCorrupt, "added_tokens_decoder: ", key, ": expected \"content\" to be a string");
    token.spelling = content->text;
    const PythonJson* special = value.Find("special");
    token.hidden = special == nullptr || !special->is_bool() || special->boolean;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

Result<std::vector<TokenId>> EosIdsFrom(const PythonJson& config) {
  const PythonJson* eos = FindSetting(config, "eos_token_id");
  if (eos == nullptr) return std::vector<TokenId>();
  const std::vector<PythonJson> values = eos->is_array() ? eos->items : std::vector<PythonJson>{*eos};
  std::vector<TokenId> ids;
  for (const PythonJson& value : values) {
    const std::optional<TokenId> id = AsTokenId(value);
    if (!id) return Fail(ErrorCode::kCorrupt, "eos_token_id: expected a token id or a list of them");
    ids.push_back(*id);
  }
  return ids;
}

Result<TokenizerParts> ReadTokenizerFiles(const std::string& folder) {
  TokenizerParts parts;
  const std::string rank_path = folder + "/tiktoken.model";
  DFIN_TRY(const std::string rank_file, ReadModelFile(rank_path, kMostFileBytes));
  auto tokens = ParseRankFile(rank_file);
  if (!tokens) return FailWith(std::move(tokens), rank_path);
  parts.tokens = std::move(*tokens);

  const std::string names_path = folder + "/tokenizer_config.json";
  DFIN_TRY(const PythonJson tokenizer_config, ReadObject(names_path));
  auto named = SpecialTokensFrom(tokenizer_config);
  if (!named) return FailWith(std::move(named), names_path);
  parts.named = std::move(*named);

  const std::string config_path = folder + "/config.json";
  DFIN_TRY(const PythonJson config, ReadObject(config_path));
  Status config_read = ReadConfig(config, &parts);
  if (!config_read) return FailWith(std::move(config_read), config_path);

  const std::string generation_path = folder + "/generation_config.json";
  auto generation = ReadObject(generation_path);
  if (!generation && generation.error().code() == ErrorCode::kNotFound) return parts;
  if (!generation) return Failure(std::move(generation.error()));
  auto eos_ids = EosIdsFrom(*generation);
  if (!eos_ids) return FailWith(std::move(eos_ids), generation_path);
  if (!eos_ids->empty()) parts.eos_ids = std::move(*eos_ids);
  return parts;
}

}  // namespace deltafin
