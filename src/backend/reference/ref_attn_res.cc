// MixResiduals: AttnRes, the softmax over depth (K3 report section 2.2, Eq. 9-10).
#include <algorithm>
#include <vector>

#include "backend/reference/ref_ops.h"

namespace deltafin::ref {
namespace {

double Score(const MixResidualsArgs& args, const float* candidate) {
  const int64_t width = args.prefix_sum.width;
  double squares = 0, dot = 0;
  for (int64_t w = 0; w < width; ++w) {
    squares += static_cast<double>(candidate[w]) * candidate[w];
    dot += candidate[w] * WeightAt(args.norm, w) * WeightAt(args.proj, w);
  }
  return dot / std::sqrt(squares / static_cast<double>(width) + args.eps);
}

}  // namespace

void MixResiduals(const MixResidualsArgs& args) {
  for (int64_t r = 0; r < args.prefix_sum.rows; ++r) {
    std::vector<const float*> candidates;
    for (const ConstRows& block : args.blocks) candidates.push_back(block.row(r));
    candidates.push_back(args.prefix_sum.row(r));

    std::vector<double> score;
    for (const float* candidate : candidates) score.push_back(Score(args, candidate));
    const double largest = *std::max_element(score.begin(), score.end());
    double total = 0;
    for (double& s : score) total += s = std::exp(s - largest);
    for (int64_t w = 0; w < args.out.width; ++w) {
      double sum = 0;
      for (size_t i = 0; i < candidates.size(); ++i) sum += score[i] / total * candidates[i][w];
      args.out.row(r)[w] = static_cast<float>(sum);
    }
  }
}

}  // namespace deltafin::ref
