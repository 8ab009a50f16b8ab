// ShortConv, Kda and GatedHeadNorm (K3 report section 2.1.1).
#include <vector>

#include "backend/check_args.h"
#include "backend/reference/ref_ops.h"

namespace deltafin::ref {

void ShortConv(const ShortConvArgs& args) {
  const int64_t taps = ConvTaps(args.kernel), rows = args.x.rows;
  // Row t of the sequence tail ++ x.
  const auto seen = [&](int64_t t) { return t < taps - 1 ? args.tail.row(t) : args.x.row(t - (taps - 1)); };
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t c = 0; c < args.x.width; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < taps; ++i) sum += static_cast<double>(seen(t + i)[c]) * args.kernel.f32()[c * taps + i];
      args.out.row(t)[c] = static_cast<float>(sum * Sigmoid(sum));
    }
  }
  // Ascending, so that with one tail for both a row is read before it is overwritten.
  for (int64_t i = 0; i < taps - 1; ++i) {
    const float* from = seen(rows + i);
    for (int64_t c = 0; c < args.x.width; ++c) args.next_tail.row(i)[c] = from[c];
  }
}

namespace {

// One head, one row: the letters are those of the paper. `before` and `after` are S [d (key), d (value)].
void KdaStep(const KdaArgs& args, int64_t head, int64_t row, const float* before, float* after) {
  const int64_t d = args.head_dim, at = head * d;
  const float *q = args.q.row(row) + at, *k = args.k.row(row) + at, *v = args.v.row(row) + at;
  double q_squares = 0, k_squares = 0;
  for (int64_t i = 0; i < d; ++i) {
    q_squares += static_cast<double>(q[i]) * q[i];
    k_squares += static_cast<double>(k[i]) * k[i];
  }
  const double q_factor = 1.0 / std::sqrt(q_squares + 1e-6) / std::sqrt(static_cast<double>(d));
  const double k_factor = 1.0 / std::sqrt(k_squares + 1e-6);
  const double rate = std::exp(static_cast<double>(args.a_log.f32()[head]));
  const double beta = Sigmoid(args.raw_beta.row(row)[head]);

  std::vector<double> decayed(static_cast<size_t>(d * d)), predicted(static_cast<size_t>(d));
  for (int64_t i = 0; i < d; ++i) {
    const double raw = static_cast<double>(args.raw_decay.row(row)[at + i]) + args.dt_bias.f32()[at + i];
    const double alpha = std::exp(args.lower_bound * Sigmoid(rate * raw));
    for (int64_t j = 0; j < d; ++j) {
      const double s = alpha * before[i * d + j];
      decayed[static_cast<size_t>(i * d + j)] = s;
      predicted[static_cast<size_t>(j)] += k[i] * k_factor * s;
    }
  }
  for (int64_t j = 0; j < d; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < d; ++i) {
      const double s =
          decayed[static_cast<size_t>(i * d + j)] + beta * k[i] * k_factor * (v[j] - predicted[static_cast<size_t>(j)]);
      after[i * d + j] = static_cast<float>(s);
      sum += q[i] * q_factor * s;
    }
    args.out.row(row)[at + j] = static_cast<float>(sum);
  }
}

}  // namespace

void Kda(const KdaArgs& args) {
  for (int64_t head = 0; head < args.heads; ++head) {
    const int64_t first = head * args.head_dim * args.head_dim;
    float* after = args.after + first;
    for (int64_t row = 0; row < args.q.rows; ++row)
      KdaStep(args, head, row, row == 0 ? args.before + first : after, after);
  }
}

void GatedHeadNorm(const GatedHeadNormArgs& args) {
  const int64_t d = args.x.width / args.heads;
  for (int64_t r = 0; r < args.x.rows; ++r) {
    for (int64_t head = 0; head < args.heads; ++head) {
      const float *x = args.x.row(r) + head * d, *gate = args.gate.row(r) + head * d;
      double squares = 0;
      for (int64_t c = 0; c < d; ++c) squares += static_cast<double>(x[c]) * x[c];
      const double factor = 1.0 / std::sqrt(squares / static_cast<double>(d) + args.eps);
      for (int64_t c = 0; c < d; ++c) {
        args.out.row(r)[head * d + c] = static_cast<float>(x[c] * factor * WeightAt(args.weight, c) * Sigmoid(gate[c]));
      }
    }
  }
}

}  // namespace deltafin::ref
