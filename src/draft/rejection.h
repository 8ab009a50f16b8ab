// rejection: accepting a drafted token that was drawn at random, so that what is emitted is distributed as if the model
// had been asked alone.
//
// With p the model's distribution for a row and q the one that the draft was drawn from: a draft x is accepted with
// probability min(1, p(x) / q(x)); in place of a rejected one a token is drawn in proportion to max(p - q, 0).
// Leviathan et al., arXiv 2211.17192; specification of drafting, part E. Distributions are [vocabulary] and sum to 1, p
// in double. Pure functions.
#pragma once

#include <span>

#include "base/ids.h"

namespace deltafin {

double AcceptChance(std::span<const double> p, std::span<const float> q, TokenId draft);

// p becomes the distribution that replaces a rejected draft; it stays as it is where it is nowhere above q.
void ToReplacement(std::span<double> p, std::span<const float> q);

// The token at `uniform` (0 <= uniform < 1) of the distribution, by ascending id.
TokenId DrawFrom(std::span<const double> p, double uniform);

}  // namespace deltafin
