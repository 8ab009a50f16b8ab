// spread: what a few repeated measurements say: their middle, how far they lie apart, and where the middle of as many
// new ones would lie.
//
// Formulas: quartiles by linear interpolation between order statistics. Rates vary by factors, so the rest is computed
// from logarithms, as if these were normal; a median of n scatters sqrt(pi / 2) times as far as a mean. With t of
// Student and s the standard deviation: the next median of n rounds lies within median * exp(+- t(0.995, n - 1) s
// sqrt(pi / n)), widened to what was seen (min to max): 99 % of the time if the machine stays as it was. Of two medians
// the ratio is known to exp(+- t(0.975) sqrt(pi / 2 (sA^2 / nA + sB^2 / nB))), degrees of freedom by Welch. Resampling
// (a bootstrap) would be far too narrow for three to ten rounds. Pure functions; values are positive.
#pragma once

#include <vector>

namespace deltafin {

struct Spread {
  int count = 0;
  double median = 0, min = 0, max = 0;
  double quartile_low = 0, quartile_high = 0;
  // Where another median of as many rounds should lie; both 0 with fewer than three values.
  double again_low = 0, again_high = 0;
};
Spread SpreadOf(std::vector<double> values);

struct RatioInterval {
  double ratio = 0;
  double low = 0, high = 0;  // 95 %; both 0 with fewer than two values on a side
};
// Median of `b` over median of `a`, measured independently.
RatioInterval RatioOfMedians(const std::vector<double>& a, const std::vector<double>& b);
// The same when a[i] and b[i] were measured next to each other: the median of b[i] / a[i]. Equal sizes.
RatioInterval RatioOfPairs(const std::vector<double>& a, const std::vector<double>& b);

// t with P(T < t) = p for Student's distribution; p in (0.5, 1), degrees of freedom at least 1.
double StudentQuantile(double p, double degrees);
// Two-sided probability that of n fair coins so many or more fall on one side as did: max(k, n - k).
double SignTest(int k, int n);

}  // namespace deltafin
