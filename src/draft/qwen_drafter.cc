#include "draft/qwen_drafter.h"

#include <algorithm>
#include <cmath>

namespace deltafin {
namespace {

// Below this the small model is unsure, and what it would say is rarely right.
constexpr float kSure = 0.3f;
constexpr int64_t kAlwaysSaid = 2;  // tokens: so few are checked whether it is sure or not
// Ids beyond those that are wanted: the last id of the model's tokens is never settled.
constexpr int64_t kMoreOwn = 2, kLeastOwn = 3;
// Ids at the end of a text that may become others when it goes on.
constexpr size_t kUnsettled = 4;
// Ids that are read at once: one proposal reads no more before it says nothing, a prompt is given up between them.
constexpr int64_t kReadAtOnce = 256;

struct Likeliest {
  TokenId id = -1;
  float chance = 0;
};

// Of the first `count` logits; a number that is none makes the chance none.
Likeliest Pick(std::span<const float> logits, TokenId count) {
  Likeliest best;
  const std::span<const float> usable = logits.first(static_cast<size_t>(count));
  for (const float logit : usable)
    if (!std::isfinite(logit)) return {};
  const auto largest = std::max_element(usable.begin(), usable.end());
  best.id = static_cast<TokenId>(largest - usable.begin());
  float sum = 0;
  for (const float logit : usable) sum += std::exp(logit - *largest);
  best.chance = 1 / sum;
  return best;
}

}  // namespace

QwenDrafter::QwenDrafter(std::unique_ptr<QwenModel> model, std::shared_ptr<const TokenBridge> bridge, int64_t most)
    : model_(std::move(model)), bridge_(std::move(bridge)), most_(std::clamp<int64_t>(most, 1, kMostDrafts)) {
  read_.reserve(static_cast<size_t>(model_->capacity()));
}

Status QwenDrafter::CheckVocabulary(const QwenConfig& config, const ByteLevelTokenizer& tokenizer) {
  if (tokenizer.token_count() <= config.vocab) return {};
  return Fail(ErrorCode::kCorrupt, "tokenizer.json: ", tokenizer.token_count(), " ids: expected at most the ",
              config.vocab, " of config.json's vocab_size: both files belong to one model");
}

bool QwenDrafter::Read(std::span<const TokenId> own, int64_t most) {
  const auto same =
      static_cast<size_t>(std::mismatch(read_.begin(), read_.end(), own.begin(), own.end()).first - read_.begin());
  // The last id is read again when nothing is new: its logits are wanted.
  const size_t kept = std::min(same, own.size() - 1);
  model_->Truncate(static_cast<int64_t>(kept));
  read_.resize(kept);
  const size_t count = std::min(own.size() - kept, static_cast<size_t>(most));
  const std::span<const TokenId> more = own.subspan(kept, count);
  model_->Append(more);
  read_.insert(read_.end(), more.begin(), more.end());
  return read_.size() == own.size();
}

// Goes on greedily, up to so many ids in all.
Status QwenDrafter::Speak(int64_t ids, Words& words) {
  const ByteLevelTokenizer& tokenizer = bridge_->drafter();
  const std::vector<TokenId>& ends = model_->config().end_tokens;
  while (static_cast<int64_t>(words.chances.size()) < ids) {
    const Likeliest next = Pick(model_->logits(), tokenizer.token_count());
    if (next.id < 0) return Fail(ErrorCode::kCorrupt, "qwen: a logit is not a number: the weights are damaged");
    words.ended = !tokenizer.IsText(next.id) || std::find(ends.begin(), ends.end(), next.id) != ends.end();
    words.unsure = !words.ended && most_ > kAlwaysSaid && next.chance < kSure;
    if (words.ended || words.unsure) return {};
    words.starts.push_back(words.text.size());
    words.chances.push_back(next.chance);
    words.text += tokenizer.BytesOf(next.id);
    model_->Append({&next.id, 1});
    read_.push_back(next.id);
  }
  return {};
}

// An id is right when all of the small model's ids that begin in it are.
std::vector<float> QwenDrafter::Beliefs(std::span<const TokenId> ids, const Words& words) const {
  std::vector<float> beliefs;
  size_t end = 0, k = 0;
  for (const TokenId id : ids) {
    end += bridge_->BytesOf(id).size();
    float belief = 1;
    for (; k < words.starts.size() && words.starts[k] < end; ++k) belief *= words.chances[k];
    beliefs.push_back(belief);
  }
  return beliefs;
}

Result<Proposal> QwenDrafter::Propose(std::span<const TokenId> history, std::span<TokenId> out) {
  if (history.empty() || out.empty()) return Proposal{};
  const std::optional<std::vector<TokenId>> own = bridge_->ToDrafter(history);
  if (!own || own->empty() || static_cast<int64_t>(own->size()) + kMostOwn > model_->capacity()) return Proposal{};
  if (!Read(*own, kReadAtOnce)) return Proposal{};
  Words words;
  std::vector<TokenId> ids;
  for (const int64_t said : {std::clamp(most_ + kMoreOwn, kLeastOwn, kMostOwn), kMostOwn}) {
    DFIN_TRY_VOID(Speak(said, words));
    ids = bridge_->ToModel(history, words.text, words.ended);
    if (words.ended || words.unsure || static_cast<int64_t>(ids.size()) >= most_) break;
  }
  Proposal proposal;
  proposal.count = std::min({static_cast<int64_t>(ids.size()), most_, static_cast<int64_t>(out.size())});
  ids.resize(static_cast<size_t>(proposal.count));
  std::copy(ids.begin(), ids.end(), out.begin());
  const std::vector<float> beliefs = Beliefs(ids, words);
  std::copy(beliefs.begin(), beliefs.end(), proposal.belief.begin());
  return proposal;
}

// In parts: a chunk of a prompt may be thousands of ids.
void QwenDrafter::OnTokens(std::span<const TokenId> session_tokens, int64_t rows, CancelToken cancel) {
  if (rows <= kMostDrafts + 1) return;  // of an answer: Propose reads them
  std::optional<std::vector<TokenId>> own = bridge_->ToDrafter(session_tokens);
  if (!own || own->size() <= kUnsettled || static_cast<int64_t>(own->size()) + kMostOwn > model_->capacity()) return;
  own->resize(own->size() - kUnsettled);
  while (!cancel.cancelled() && !Read(*own, kReadAtOnce)) {
  }
}

}  // namespace deltafin
