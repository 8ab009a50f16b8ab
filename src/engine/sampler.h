// Sampler: logits -> token. A pure function of its inputs: the same logits, history, parameters and seed give the same
// token on every machine (the random numbers are ours, the sums are in double).
//
// Greedy when temperature is 0: the largest logit, equal ones to the lower id. Otherwise: penalties, temperature, then
// the filters top_k, top_p, min_p in this order on the candidates sorted by probability (equal ones: lower id first),
// then one draw. A logit that is not a number is never chosen. Scratch is taken at construction. Thread rule:
// thread-compatible.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace deltafin {

struct SamplingParams {
  double temperature = 0;         // 0 = greedy
  double top_p = 1;               // (0, 1]
  int64_t top_k = 0;              // 0 = off
  double min_p = 0;               // [0, 1]: drop what is less likely than min_p times the likeliest
  double presence_penalty = 0;    // [-2, 2], once for a token already generated
  double frequency_penalty = 0;   // [-2, 2], for each time it was generated
  double repetition_penalty = 1;  // > 0: logits of tokens in prompt or answer are divided (negative: multiplied) by it
  uint64_t seed = 0;

  bool has_penalties() const { return presence_penalty != 0 || frequency_penalty != 0 || repetition_penalty != 1; }
  // kInvalidArgument naming the option.
  Status Validate() const;
};

class Sampler {
 public:
  // Tokens at or beyond `usable_vocab` (padding rows of the matrices) are never chosen.
  Sampler(const SamplingParams& params, int64_t vocab, int64_t usable_vocab);

  // Makes tokens count for the penalties.
  void ObservePrompt(std::span<const TokenId> tokens);

  // Makes tokens count as the first that were generated: what follows is what would have followed them.
  void ObserveAnswer(std::span<const TokenId> tokens);

  // The next token; it then counts as generated. kCorrupt when no logit is a number.
  Result<TokenId> Sample(std::span<const float> logits);
  // The same with a token that was drawn from the distribution `q`, [vocab], which is taken as often as may be
  // (draft/rejection.h): distributed like Sample(), with other draws. Greedy: as Sample().
  Result<TokenId> SampleDrafted(std::span<const float> logits, TokenId draft, std::span<const float> q);
  // What Sample() draws from, [vocab].
  Status Distribution(std::span<const float> logits, std::span<double> out);

 private:
  struct Candidate {
    double score;
    TokenId id;
  };
  Result<TokenId> Greedy(std::span<const float> logits) const;
  Result<TokenId> Draw(std::span<const float> logits);
  // Candidates that may be chosen come first, their scores in proportion to their probability; how many, and their sum.
  struct Kept {
    size_t count = 0;
    double sum = 0;
  };
  Result<Kept> KeepCandidates(std::span<const float> logits);
  double Penalised(double logit, size_t id) const;
  double NextUniform();  // [0, 1)

  SamplingParams params_;
  size_t usable_;
  uint64_t random_state_;
  std::vector<int32_t> generated_;  // times each token was generated
  std::vector<bool> in_prompt_;
  std::vector<Candidate> candidates_;
  std::vector<double> distribution_;  // for drafts that were drawn
};

}  // namespace deltafin
