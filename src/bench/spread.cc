#include "bench/spread.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace deltafin {
namespace {

constexpr int kFewestForAgain = 3;
constexpr double kAgainLevel = 0.995, kRatioLevel = 0.975;  // one-sided

double QuantileOf(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

double MiddleOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return QuantileOf(values, 0.5);
}

std::vector<double> Logs(const std::vector<double>& values) {
  std::vector<double> logs;
  for (const double value : values) logs.push_back(std::log(value));
  return logs;
}

// Of a sample, with n - 1.
double Variance(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return sum / (n - 1);
}

}  // namespace

// With t = sqrt(f) tan(angle) the density is a power of the cosine, which is smooth whatever f is.
double StudentQuantile(double p, double degrees) {
  const double factor =
      std::exp(std::lgamma((degrees + 1) / 2) - std::lgamma(degrees / 2)) / std::sqrt(std::numbers::pi);
  const auto probability = [&](double angle) {
    constexpr int kSteps = 64;  // Simpson's rule
    const double h = angle / kSteps;
    double sum = 0;
    for (int i = 0; i <= kSteps; ++i) {
      const double weight = i == 0 || i == kSteps ? 1 : i % 2 == 1 ? 4 : 2;
      sum += weight * std::pow(std::cos(h * i), degrees - 1);
    }
    return 0.5 + factor * sum * h / 3;
  };
  double low = 0, high = std::numbers::pi / 2;
  for (int i = 0; i < 45; ++i) {
    const double middle = (low + high) / 2;
    (probability(middle) < p ? low : high) = middle;
  }
  return std::sqrt(degrees) * std::tan(low);
}

Spread SpreadOf(std::vector<double> values) {
  Spread out;
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  out.count = static_cast<int>(values.size());
  out.median = QuantileOf(values, 0.5);
  out.min = values.front();
  out.max = values.back();
  out.quartile_low = QuantileOf(values, 0.25);
  out.quartile_high = QuantileOf(values, 0.75);
  if (out.count < kFewestForAgain || out.min <= 0) return out;
  const double n = out.count;
  const double reach = StudentQuantile(kAgainLevel, n - 1) * std::sqrt(Variance(Logs(values)) * std::numbers::pi / n);
  out.again_low = std::min(out.min, out.median * std::exp(-reach));
  out.again_high = std::max(out.max, out.median * std::exp(reach));
  return out;
}

RatioInterval RatioOfMedians(const std::vector<double>& a, const std::vector<double>& b) {
  RatioInterval out;
  if (a.empty() || b.empty()) return out;
  out.ratio = MiddleOf(b) / MiddleOf(a);
  if (a.size() < 2 || b.size() < 2) return out;
  const auto na = static_cast<double>(a.size()), nb = static_cast<double>(b.size());
  const double va = Variance(Logs(a)) / na, vb = Variance(Logs(b)) / nb;
  double reach = 0;
  if (va + vb > 0) {
    const double degrees = (va + vb) * (va + vb) / (va * va / (na - 1) + vb * vb / (nb - 1));
    reach = StudentQuantile(kRatioLevel, std::max(1.0, degrees)) * std::sqrt((va + vb) * std::numbers::pi / 2);
  }
  out.low = out.ratio * std::exp(-reach);
  out.high = out.ratio * std::exp(reach);
  return out;
}

RatioInterval RatioOfPairs(const std::vector<double>& a, const std::vector<double>& b) {
  RatioInterval out;
  if (a.empty() || a.size() != b.size()) return out;
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(b[i] / a[i]);
  out.ratio = MiddleOf(ratios);
  if (ratios.size() < 2) return out;
  const auto n = static_cast<double>(ratios.size());
  const double reach =
      StudentQuantile(kRatioLevel, n - 1) * std::sqrt(Variance(Logs(ratios)) * std::numbers::pi / 2 / n);
  out.low = out.ratio * std::exp(-reach);
  out.high = out.ratio * std::exp(reach);
  return out;
}

double SignTest(int k, int n) {
  double sum = 0;
  for (int i = std::max(k, n - k); i <= n; ++i)
    sum += std::exp(std::lgamma(n + 1.0) - std::lgamma(i + 1.0) - std::lgamma(n - i + 1.0) - n * std::numbers::ln2);
  return std::min(1.0, 2 * sum);
}

}  // namespace deltafin
