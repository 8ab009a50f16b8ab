// Router, ExpertMlp and CombineExperts (K3 report section 2.3, Eq. 11-13).
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "backend/reference/ref_ops.h"

namespace deltafin::ref {
namespace {

// What the choice sorts by. NaN sorts last, so that the ids stay a valid choice whatever the input.
float Rank(float score, float bias) {
  const float rank = score + bias;
  return std::isnan(rank) ? -std::numeric_limits<float>::infinity() : rank;
}

double Mxfp4At(const Mxfp4View& w, int64_t r, int64_t c) {
  const uint8_t byte = w.packed_row(r)[c / 2];
  const uint8_t nibble = c % 2 == 0 ? byte & 15 : byte >> 4;
  return static_cast<double>(E2M1ToFloat(nibble)) * E8M0ToFloat(w.scale_row(r)[c / kMxfp4Group]);
}

template <typename Input>
std::vector<double> MatrixVector(const Mxfp4View& w, const Input* x) {
  std::vector<double> out(static_cast<size_t>(w.rows));
  for (int64_t r = 0; r < w.rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < w.cols; ++c) sum += Mxfp4At(w, r, c) * x[c];
    out[static_cast<size_t>(r)] = sum;
  }
  return out;
}

// A sum of experts after one more. In float32, since it may lie in memory between two experts.
float Added(float weight, float part, float sum, bool is_first) {
  return is_first ? weight * part : std::fma(weight, part, sum);
}

}  // namespace

void Router(const RouterArgs& args) {
  Linear({args.weight, args.x, args.scores});
  const auto experts = static_cast<size_t>(args.scores.width);
  const auto top_k = static_cast<size_t>(args.top_k);
  std::vector<int32_t> order(experts);
  for (int64_t r = 0; r < args.x.rows; ++r) {
    float* scores = args.scores.row(r);
    for (size_t e = 0; e < experts; ++e) scores[e] = static_cast<float>(Sigmoid(scores[e]));
    std::iota(order.begin(), order.end(), 0);
    const auto before = [&](int32_t a, int32_t b) {
      return Rank(scores[a], args.bias.f32()[a]) > Rank(scores[b], args.bias.f32()[b]);
    };
    std::stable_sort(order.begin(), order.end(), before);

    double sum = 0;
    for (size_t i = 0; i < top_k; ++i) sum += scores[order[i]];
    for (size_t i = 0; i < top_k; ++i) {
      const size_t at = static_cast<size_t>(r) * top_k + i;
      args.expert_ids[at] = order[i];
      args.expert_weights[at] = static_cast<float>(scores[order[i]] / (sum + 1e-20) * args.scaling);
    }
  }
}

void ExpertMlp(const ExpertMlpArgs& args) {
  for (size_t i = 0; i < args.x_rows.size(); ++i) {
    const float* x = args.x.row(args.x_rows[i]);
    std::vector<double> hidden = MatrixVector(args.w1, x);
    const std::vector<double> up = MatrixVector(args.w3, x);
    for (size_t c = 0; c < hidden.size(); ++c) hidden[c] = SituGluAt(hidden[c], up[c], args.beta, args.linear_beta);
    const std::vector<double> out = MatrixVector(args.w2, hidden.data());
    float* row = args.out.row(args.out_rows[i]);
    for (size_t c = 0; c < out.size(); ++c) row[c] = static_cast<float>(out[c]);
  }
}

void CombineExperts(const CombineExpertsArgs& args) {
  for (int64_t r = 0; r < args.out.rows; ++r) {
    for (int64_t c = 0; c < args.out.width; ++c) {
      float sum = 0;
      for (int64_t i = 0; i < args.top_k; ++i) {
        const int64_t slot = r * args.top_k + args.order[static_cast<size_t>(r * args.top_k + i)];
        sum = Added(args.weights[static_cast<size_t>(slot)], args.partial.row(slot)[c], sum, i == 0);
      }
      args.out.row(r)[c] = sum;
    }
  }
}

void AddExpert(const AddExpertArgs& args) {
  for (size_t i = 0; i < args.routes.size(); ++i) {
    const auto route = static_cast<size_t>(args.routes[i]), top_k = static_cast<size_t>(args.top_k);
    const bool is_first = static_cast<size_t>(args.order[route / top_k * top_k]) == route % top_k;
    float* out = args.out.row(static_cast<int64_t>(route / top_k));
    const float* partial = args.partial.row(static_cast<int64_t>(i));
    for (int64_t c = 0; c < args.out.width; ++c) out[c] = Added(args.weights[route], partial[c], out[c], is_first);
  }
}

}  // namespace deltafin::ref
