// TokenScores: how likely the model held one token, and which ones it held likeliest.
//
// Log probabilities are those of the model's own distribution over the usable vocabulary, before temperature,
// penalties, biases and filters. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace deltafin {

struct TokenScore {
  TokenId id = 0;
  double logprob = 0;
  bool operator==(const TokenScore&) const = default;
};

struct TokenScores {
  double logprob = 0;           // of the token itself
  std::vector<TokenScore> top;  // likeliest first; equal ones: lower id first
  bool operator==(const TokenScores&) const = default;
};

// Of `token`, with the `top` likeliest beside it.
TokenScores ScoreToken(std::span<const float> logits, int64_t usable_vocab, TokenId token, int64_t top);

}  // namespace deltafin
