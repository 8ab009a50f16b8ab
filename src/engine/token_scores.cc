#include "engine/token_scores.h"

#include <algorithm>
#include <cmath>

namespace deltafin {

TokenScores ScoreToken(std::span<const float> logits, int64_t usable_vocab, TokenId token, int64_t top) {
  const std::span<const float> usable = logits.first(static_cast<size_t>(usable_vocab));
  float most = -INFINITY;
  for (const float x : usable)
    if (x > most) most = x;
  double sum = 0;
  for (const float x : usable)
    if (!std::isnan(x)) sum += std::exp(static_cast<double>(x) - most);
  const double log_sum = most + std::log(sum);
  TokenScores scores;
  scores.logprob = logits[static_cast<size_t>(token)] - log_sum;
  if (top <= 0) return scores;
  std::vector<TokenId> ids;
  ids.reserve(usable.size());
  for (size_t id = 0; id < usable.size(); ++id)
    if (!std::isnan(usable[id])) ids.push_back(static_cast<TokenId>(id));
  const auto count = static_cast<std::ptrdiff_t>(std::min<size_t>(static_cast<size_t>(top), ids.size()));
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](TokenId a, TokenId b) {
    const float x = usable[static_cast<size_t>(a)], y = usable[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    const TokenId id = ids[static_cast<size_t>(i)];
    scores.top.push_back({id, usable[static_cast<size_t>(id)] - log_sum});
  }
  return scores;
}

}  // namespace deltafin
