#include "draft/yarn.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace deltafin {
namespace {

double Magnitude(double factor, double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; }

}  // namespace

std::vector<double> YarnFrequencies(const YarnParameters& p) {
  const auto dims = static_cast<double>(p.dims);
  const auto corr = [&](double rotations) {
    return dims * std::log(static_cast<double>(p.original_positions) / (2 * std::numbers::pi * rotations)) /
           (2 * std::log(p.theta));
  };
  const double low = std::max(std::floor(corr(p.beta_fast)), 0.0);
  double high = std::min(std::ceil(corr(p.beta_slow)), dims - 1);
  if (low == high) high += 0.001;
  std::vector<double> out;
  for (int64_t i = 0; i < p.dims / 2; ++i) {
    const auto at = static_cast<double>(i);
    const double plain = std::pow(p.theta, -2 * at / dims);
    const double ramp = std::clamp((at - low) / (high - low), 0.0, 1.0);
    out.push_back(plain / p.factor * ramp + plain * (1 - ramp));
  }
  return out;
}

double YarnRotationScale(const YarnParameters& p) {
  return Magnitude(p.factor, p.mscale) / Magnitude(p.factor, p.mscale_all_dim);
}

double YarnScoreScale(const YarnParameters& p) {
  const double m = Magnitude(p.factor, p.mscale_all_dim);
  return m * m;
}

void RotatePairs(const std::vector<double>& frequencies, double scale, int64_t position, float* x) {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    // The angle as the checkpoints were trained with it: in float32.
    const float angle = static_cast<float>(position) * static_cast<float>(frequencies[i]);
    const auto c = static_cast<float>(std::cos(angle) * scale), s = static_cast<float>(std::sin(angle) * scale);
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * c - b * s;
    x[2 * i + 1] = b * c + a * s;
  }
}

}  // namespace deltafin
