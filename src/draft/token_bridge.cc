#include "draft/token_bridge.h"

#include <algorithm>
#include <string>

#include "text/utf8.h"

namespace deltafin {
namespace {

// Ids at the end of a history that are compared: more than any piece of text has that more text could still change.
constexpr size_t kCompared = 64;

// The bytes of `text` up to an incomplete last character; nothing when it is ill-formed before.
std::optional<size_t> WholeCharacters(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = ScanUtf8(text.substr(at));
    if (step.scan == Utf8Scan::kIllFormed) return std::nullopt;
    if (step.scan == Utf8Scan::kTruncated) break;
    at += step.length;
  }
  return at;
}

}  // namespace

std::optional<std::vector<TokenId>> TokenBridge::ToDrafter(std::span<const TokenId> history) const {
  std::string text;
  for (const TokenId id : history) {
    if (id < 0 || id >= model_->base()) return std::nullopt;
    text += model_->BytesOf(id);
  }
  if (WholeCharacters(text) != text.size()) return std::nullopt;
  return drafter_.Encode(text);
}

std::vector<TokenId> TokenBridge::ToModel(std::span<const TokenId> history, std::string_view more, bool ended) const {
  const std::optional<size_t> whole = WholeCharacters(more);
  if (!whole || *whole == 0) return {};
  const bool cut = *whole < more.size();
  for (size_t first = history.size() - std::min(history.size(), kCompared); first < history.size(); ++first) {
    const std::span<const TokenId> compared = history.subspan(first);
    std::string text;
    for (const TokenId id : compared) text += model_->BytesOf(id);
    const std::vector<TokenId> same = model_->EncodeRaw(text);
    if (!std::equal(same.begin(), same.end(), compared.begin(), compared.end())) continue;
    text += more.substr(0, *whole);
    std::vector<TokenId> ids = model_->EncodeRaw(text);
    const auto stays = std::mismatch(compared.begin(), compared.end(), ids.begin(), ids.end()).first;
    if (stays != compared.end()) return {};
    ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(compared.size()));
    if ((!ended || cut) && !ids.empty()) ids.pop_back();
    return ids;
  }
  return {};
}

}  // namespace deltafin
