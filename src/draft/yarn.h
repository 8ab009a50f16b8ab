// yarn: rotary position encoding with YaRN's frequencies, as the DSpark checkpoints use it.
//
// Formulas: specification of drafting, part A.5 (YaRN, arXiv 2309.00071). Rotation acts on adjacent pairs, in float32
// from the angle position * frequency. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace deltafin {

struct YarnParameters {
  int64_t dims = 0;  // of the rotated part, even
  double theta = 0, factor = 1;
  int64_t original_positions = 0;
  double beta_fast = 0, beta_slow = 0;
  double mscale = 1, mscale_all_dim = 1;
};

// [dims / 2].
std::vector<double> YarnFrequencies(const YarnParameters& parameters);
// Factor on cosines and sines.
double YarnRotationScale(const YarnParameters& parameters);
// Factor on attention scores, besides 1 / sqrt(width of a key).
double YarnScoreScale(const YarnParameters& parameters);

// x[2i], x[2i + 1] are turned by position * frequencies[i] and scaled.
void RotatePairs(const std::vector<double>& frequencies, double scale, int64_t position, float* x);

}  // namespace deltafin
