#include "engine/sampler.h"

#include <algorithm>
#include <cmath>

#include "draft/rejection.h"

namespace deltafin {

Status SamplingParams::Validate() const {
  const auto refuse = [](const char* option, double got, const char* expected) {
    return Fail(ErrorCode::kInvalidArgument, option, " ", got, ": expected ", expected);
  };
  if (!(temperature >= 0 && temperature <= 100)) return refuse("--temperature", temperature, "0 (greedy) to 100");
  if (!(top_p > 0 && top_p <= 1)) return refuse("--top-p", top_p, "more than 0, at most 1");
  if (top_k < 0) return refuse("--top-k", static_cast<double>(top_k), "0 (off) or more");
  if (!(min_p >= 0 && min_p <= 1)) return refuse("--min-p", min_p, "0 to 1");
  if (!(std::abs(presence_penalty) <= 2)) return refuse("--presence-penalty", presence_penalty, "-2 to 2");
  if (!(std::abs(frequency_penalty) <= 2)) return refuse("--frequency-penalty", frequency_penalty, "-2 to 2");
  if (!(repetition_penalty > 0 && repetition_penalty <= 100))
    return refuse("--repetition-penalty", repetition_penalty, "more than 0, at most 100");
  return {};
}

Sampler::Sampler(const SamplingParams& params, int64_t vocab, int64_t usable_vocab)
    : params_(params), usable_(static_cast<size_t>(std::min(vocab, usable_vocab))), random_state_(params.seed) {
  generated_.resize(static_cast<size_t>(vocab));
  in_prompt_.resize(static_cast<size_t>(vocab));
  if (params.temperature > 0) candidates_.reserve(usable_);
}

void Sampler::ObservePrompt(std::span<const TokenId> tokens) {
  for (const TokenId id : tokens) in_prompt_[static_cast<size_t>(id)] = true;
}

void Sampler::ObserveAnswer(std::span<const TokenId> tokens) {
  for (const TokenId id : tokens) {
    ++generated_[static_cast<size_t>(id)];
    if (params_.temperature > 0) (void)NextUniform();  // each one took one draw
  }
}

Result<TokenId> Sampler::Sample(std::span<const float> logits) {
  Result<TokenId> token = params_.temperature == 0 ? Greedy(logits) : Draw(logits);
  if (token) ++generated_[static_cast<size_t>(*token)];
  return token;
}

double Sampler::Penalised(double logit, size_t id) const {
  const int32_t count = generated_[id];
  if (params_.repetition_penalty != 1 && (count > 0 || in_prompt_[id]))
    logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
  if (count > 0) logit -= params_.presence_penalty + params_.frequency_penalty * count;
  return logit;
}

Result<TokenId> Sampler::Greedy(std::span<const float> logits) const {
  TokenId best = -1;
  double best_score = 0;
  for (size_t id = 0; id < usable_; ++id) {
    const double score = params_.has_penalties() ? Penalised(logits[id], id) : logits[id];
    if (std::isnan(score) || (best >= 0 && !(score > best_score))) continue;
    best = static_cast<TokenId>(id);
    best_score = score;
  }
  if (best < 0) return Fail(ErrorCode::kCorrupt, "sampling: none of the logits is a number: the weights are damaged");
  return best;
}

Result<TokenId> Sampler::Draw(std::span<const float> logits) {
  DFIN_TRY(const Kept kept, KeepCandidates(logits));
  double draw = NextUniform() * kept.sum;
  for (size_t i = 0; i < kept.count; ++i) {
    draw -= candidates_[i].score;
    if (draw < 0) return candidates_[i].id;
  }
  return candidates_[kept.count - 1].id;
}

Status Sampler::Distribution(std::span<const float> logits, std::span<double> out) {
  std::fill(out.begin(), out.end(), 0.0);
  if (params_.temperature == 0) {
    DFIN_TRY(const TokenId best, Greedy(logits));
    out[static_cast<size_t>(best)] = 1;
    return {};
  }
  DFIN_TRY(const Kept kept, KeepCandidates(logits));
  for (size_t i = 0; i < kept.count; ++i) out[static_cast<size_t>(candidates_[i].id)] = candidates_[i].score / kept.sum;
  return {};
}

Result<TokenId> Sampler::SampleDrafted(std::span<const float> logits, TokenId draft, std::span<const float> q) {
  if (params_.temperature == 0) return Sample(logits);
  distribution_.resize(generated_.size());
  DFIN_TRY_VOID(Distribution(logits, distribution_));
  TokenId token = draft;
  if (!(NextUniform() < AcceptChance(distribution_, q, draft))) {
    ToReplacement(distribution_, q);
    token = DrawFrom(distribution_, NextUniform());
  }
  ++generated_[static_cast<size_t>(token)];
  return token;
}

Result<Sampler::Kept> Sampler::KeepCandidates(std::span<const float> logits) {
  candidates_.clear();
  for (size_t id = 0; id < usable_; ++id) {
    const double score = Penalised(logits[id], id) / params_.temperature;
    if (!std::isnan(score) && score > -INFINITY) candidates_.push_back({score, static_cast<TokenId>(id)});
  }
  if (candidates_.empty())
    return Fail(ErrorCode::kCorrupt, "sampling: none of the logits is a number: the weights are damaged");
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.score > b.score || (a.score == b.score && a.id < b.id);
  };
  if (params_.top_k > 0 && static_cast<size_t>(params_.top_k) < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + params_.top_k, candidates_.end(), better);
    candidates_.resize(static_cast<size_t>(params_.top_k));
  }
  std::sort(candidates_.begin(), candidates_.end(), better);

  const double top = candidates_.front().score;
  double total = 0;
  for (Candidate& c : candidates_) {
    c.score = top == INFINITY ? (c.score == INFINITY ? 1.0 : 0.0) : std::exp(c.score - top);
    total += c.score;
  }
  // top_p keeps the shortest prefix whose probability reaches top_p; min_p what is likely enough beside the first.
  Kept kept;
  for (const Candidate& c : candidates_) {
    if (kept.count > 0 && (kept.sum >= params_.top_p * total || c.score < params_.min_p)) break;
    kept.sum += c.score;
    ++kept.count;
  }
  return kept;
}

// splitmix64 (public domain, S. Vigna): a counter and a mixing function.
double Sampler::NextUniform() {
  uint64_t z = (random_state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
}

}  // namespace deltafin
