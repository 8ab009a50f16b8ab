// MlaAttend (K3 report section 2.1.2, Eq. 7), absorbed: scores against the cached latent, values mixed as latents.
#include <algorithm>
#include <vector>

#include "backend/reference/ref_ops.h"

namespace deltafin::ref {
namespace {

// Softmax over the positions 0 .. count - 1, in place.
void Softmax(std::vector<double>& score) {
  const double largest = *std::max_element(score.begin(), score.end());
  double sum = 0;
  for (double& s : score) sum += s = std::exp(s - largest);
  for (double& s : score) s /= sum;
}

// Latent and rope key of one position.
std::vector<float> CacheRow(const MlaAttendArgs& args, int64_t position) {
  std::vector<float> row(static_cast<size_t>(args.latent + args.rope));
  for (size_t c = 0; c < row.size(); ++c)
    row[c] = args.cache.is_bf16() ? Bf16ToFloat(args.cache.bf16_row(position)[c]) : args.cache.row(position)[c];
  return row;
}

void AttendHead(const MlaAttendArgs& args, int64_t row, int64_t head) {
  const int64_t nope = args.nope, rope = args.rope, latent = args.latent;
  const float* q = args.q.row(row) + head * (nope + rope);
  const int64_t key_rows = head * (nope + args.v_dim), value_rows = key_rows + nope;

  std::vector<double> ql(static_cast<size_t>(latent));
  for (int64_t i = 0; i < nope; ++i) {
    for (int64_t c = 0; c < latent; ++c) {
      ql[static_cast<size_t>(c)] += q[i] * WeightAt(args.kv_b_proj, (key_rows + i) * latent + c);
    }
  }
  std::vector<double> score(static_cast<size_t>(args.first_position + row + 1));
  for (size_t j = 0; j < score.size(); ++j) {
    const std::vector<float> key = CacheRow(args, static_cast<int64_t>(j));
    double sum = 0;
    for (int64_t c = 0; c < latent; ++c) sum += ql[static_cast<size_t>(c)] * key[static_cast<size_t>(c)];
    for (int64_t c = 0; c < rope; ++c) sum += static_cast<double>(q[nope + c]) * key[static_cast<size_t>(latent + c)];
    score[j] = sum / std::sqrt(static_cast<double>(nope + rope));
  }
  Softmax(score);
  std::vector<double> mix(static_cast<size_t>(latent));
  for (size_t j = 0; j < score.size(); ++j) {
    const std::vector<float> key = CacheRow(args, static_cast<int64_t>(j));
    for (int64_t c = 0; c < latent; ++c) mix[static_cast<size_t>(c)] += score[j] * key[static_cast<size_t>(c)];
  }
  for (int64_t i = 0; i < args.v_dim; ++i) {
    double sum = 0;
    for (int64_t c = 0; c < latent; ++c) {
      sum += WeightAt(args.kv_b_proj, (value_rows + i) * latent + c) * mix[static_cast<size_t>(c)];
    }
    args.out.row(row)[head * args.v_dim + i] = static_cast<float>(sum);
  }
}

}  // namespace

void MlaAttend(const MlaAttendArgs& args) {
  for (int64_t row = 0; row < args.q.rows; ++row) {
    for (int64_t head = 0; head < args.heads; ++head) AttendHead(args, row, head);
  }
}

}  // namespace deltafin::ref
