#include "draft/rejection.h"

#include <algorithm>

namespace deltafin {

double AcceptChance(std::span<const double> p, std::span<const float> q, TokenId draft) {
  const auto x = static_cast<size_t>(draft);
  return q[x] > 0 ? std::min(1.0, p[x] / static_cast<double>(q[x])) : 1.0;
}

void ToReplacement(std::span<double> p, std::span<const float> q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::max(p[i] - static_cast<double>(q[i]), 0.0);
  if (sum <= 0) return;
  for (size_t i = 0; i < p.size(); ++i) p[i] = std::max(p[i] - static_cast<double>(q[i]), 0.0) / sum;
}

TokenId DrawFrom(std::span<const double> p, double uniform) {
  double left = uniform;
  size_t last = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] <= 0) continue;
    last = i;
    left -= p[i];
    if (left < 0) break;
  }
  return static_cast<TokenId>(last);
}

}  // namespace deltafin
