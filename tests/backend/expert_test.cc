// ExpertMlp against the reference, its exactness at the ends of the scale range, and its row invariance.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "backend_fixture.h"

namespace deltafin::test {
namespace {

constexpr float kBeta = 4, kLinearBeta = 25;

struct ExpertCase {
  int64_t latent, inner, rows, offset;
};

struct Expert {
  Mxfp4Matrix w1, w3, w2;

  Expert(Random& random, int64_t latent, int64_t inner, int64_t offset)
      : w1(random, inner, latent, 118, 124, offset),
        w3(random, inner, latent, 118, 124, offset),
        w2(random, latent, inner, 118, 124, offset) {}

  ExpertMlpArgs Args(const Activations& x, const std::vector<int32_t>& rows, Activations& out) const {
    return {w1.view(), w3.view(), w2.view(), kBeta, kLinearBeta, x.view(), rows, out.view(), rows};
  }
};

std::vector<int32_t> Iota(int64_t n, int32_t first = 0) {
  std::vector<int32_t> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), first);
  return out;
}

// Value and worst-case error bound of every output for one row. The activation a(g) b(u), with a = beta tanh(g / beta)
// sigmoid(g) and b = linear_beta tanh(u / linear_beta), has |a'| <= 1 + beta / 4, |b'| <= 1; the functions are good to
// 1e-6.
void ExactRow(const Expert& e, const float* x, std::vector<double>& value, std::vector<double>& bound) {
  const auto inner = static_cast<size_t>(e.w1.rows);
  std::vector<double> hidden(inner), hidden_error(inner);
  for (size_t i = 0; i < inner; ++i) {
    double g = 0, u = 0, g_size = 0, u_size = 0;
    for (int64_t c = 0; c < e.w1.cols; ++c) {
      const double pg = e.w1.at(static_cast<int64_t>(i), c) * x[c], pu = e.w3.at(static_cast<int64_t>(i), c) * x[c];
      g += pg, u += pu, g_size += std::abs(pg), u_size += std::abs(pu);
    }
    const double a = kBeta * std::tanh(g / kBeta) / (1 + std::exp(-g)), b = kLinearBeta * std::tanh(u / kLinearBeta);
    hidden[i] = a * b;
    hidden_error[i] = (1 + kBeta / 4) * std::abs(b) * DotBound(e.w1.cols, g_size) +
                      std::abs(a) * DotBound(e.w1.cols, u_size) + 3e-6 * std::abs(a * b);
  }
  for (int64_t n = 0; n < e.w2.rows; ++n) {
    double sum = 0, size = 0, error = 0;
    for (size_t i = 0; i < inner; ++i) {
      const double w = e.w2.at(n, static_cast<int64_t>(i));
      sum += w * hidden[i], size += std::abs(w * hidden[i]), error += std::abs(w) * hidden_error[i];
    }
    value[static_cast<size_t>(n)] = sum;
    bound[static_cast<size_t>(n)] = error + DotBound(e.w2.cols, size);
  }
}

class ExpertConformance : public testing::TestWithParam<std::tuple<std::string, ExpertCase>> {};

TEST_P(ExpertConformance, StaysInsideTheWorstCaseBound) {
  const auto& [isa, c] = GetParam();
  Random random(5);
  const Expert expert(random, c.latent, c.inner, c.offset);
  const Activations x(random, c.rows, c.latent);
  Activations out(c.rows, c.latent);
  MakeCpu(isa, 2)->ExpertMlp(expert.Args(x, Iota(c.rows), out));
  std::vector<double> value(static_cast<size_t>(c.latent)), bound(value.size());
  for (int64_t r = 0; r < c.rows; ++r) {
    ExactRow(expert, x.view().row(r), value, bound);
    for (size_t n = 0; n < value.size(); ++n) {
      ASSERT_NEAR(out.view().row(r)[n], value[n], bound[n]) << "row " << r << " output " << n;
    }
  }
}

const ExpertCase kExpertCases[] = {{3584, 3072, 1, 0}, {128, 96, 1, 1},    {128, 96, 5, 3},   {32, 32, 2, 5},
                                   {64, 160, 3, 7},    {480, 544, 4, 1},   {544, 480, 17, 9}, {768, 1056, 8, 11},
                                   {512, 512, 64, 1},  {1024, 992, 66, 13}};

INSTANTIATE_TEST_SUITE_P(All, ExpertConformance,
                         testing::Combine(testing::ValuesIn(Isas()), testing::ValuesIn(kExpertCases)),
                         [](const auto& info) {
                           const ExpertCase& c = std::get<1>(info.param);
                           return Cat(std::get<0>(info.param), "_", c.latent, "x", c.inner, "_rows", c.rows);
                         });

class ExpertInvariance : public testing::TestWithParam<std::string> {};

TEST_P(ExpertInvariance, ARowHasTheSameBitsInAnyBatchAtAnyPlaceOnAnyThreads) {
  Random random(6);
  const int64_t latent = 1184, inner = 672, rows = 67;
  const Expert expert(random, latent, inner, 1);
  const Activations x(random, rows, latent, 1, latent + 5);
  Activations alone(rows, latent);
  const auto single = MakeCpu(GetParam(), 1);
  for (int32_t r = 0; r < rows; ++r) single->ExpertMlp(expert.Args(x, {r}, alone));
  for (const int threads : {1, 2, 3, 4}) {
    const auto backend = MakeCpu(GetParam(), threads);
    for (const int64_t count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 32, 64, 67}) {
      Activations out(rows, latent);
      const auto first = static_cast<int32_t>(rows - count);
      backend->ExpertMlp(expert.Args(x, Iota(count, first), out));
      ASSERT_TRUE(SameBits(out.view().row(first), alone.view().row(first), count * latent))
          << threads << " threads, " << count << " rows";
    }
  }
}

TEST_P(ExpertInvariance, TheByteAddressOfTheWeightsDoesNotMatter) {
  for (const int64_t rows : {1, 3, 9}) {
    std::vector<float> first;
    for (const int64_t offset : {0, 1, 2, 3, 17}) {
      Random random(7);
      Expert expert(random, 544, 608, 0);
      for (Mxfp4Matrix* m : {&expert.w1, &expert.w2, &expert.w3}) {
        m->packed.insert(m->packed.begin(), static_cast<size_t>(offset), 0xff);
        m->scale.insert(m->scale.begin(), static_cast<size_t>(offset), 0xfe);
        m->offset = offset;
      }
      const Activations x(random, rows, 544);
      Activations out(rows, 544);
      MakeCpu(GetParam())->ExpertMlp(expert.Args(x, Iota(rows), out));
      if (offset == 0) first = out.values;
      ASSERT_TRUE(SameBits(out.values, first)) << rows << " rows, offset " << offset;
    }
  }
}

TEST_P(ExpertInvariance, RowsAreGatheredAndScatteredByTheirLists) {
  Random random(8);
  const Expert expert(random, 256, 96, 0);
  const Activations x(random, 12, 256);
  Activations direct(12, 256), scattered(20, 256);
  const auto backend = MakeCpu(GetParam());
  backend->ExpertMlp(expert.Args(x, Iota(12), direct));
  const std::vector<int32_t> from = {11, 3, 3, 0, 7, 5}, to = {2, 19, 0, 5, 6, 11};
  ExpertMlpArgs args = expert.Args(x, from, scattered);
  args.out_rows = to;
  backend->ExpertMlp(args);
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_TRUE(SameBits(scattered.view().row(to[i]), direct.view().row(from[i]), 256)) << "pair " << i;
  }
  EXPECT_EQ(scattered.view().row(1)[0], 0.0f);
}

// One weight of 1.0 in every row of w1 and w3, so gate = up = x[0] * 2^(scale - 127) exactly; w2 passes the hidden
// value on. `rows` selects between the kernels for few and for many rows.
float SingleWeight(Backend& backend, uint8_t scale, float x0, int64_t rows, int64_t cols) {
  Random random(9);
  Expert expert(random, cols, cols, 0);
  for (Mxfp4Matrix* m : {&expert.w1, &expert.w2, &expert.w3}) {
    std::fill(m->packed.begin(), m->packed.end(), uint8_t{0});
    std::fill(m->scale.begin(), m->scale.end(), m == &expert.w2 ? uint8_t{127} : scale);
    for (int64_t r = 0; r < m->rows; ++r) m->packed[static_cast<size_t>(r * m->cols / 2)] = 0x02;
  }
  Activations x(rows, cols), out(rows, cols);
  for (int64_t r = 0; r < rows; ++r) x.view().row(r)[0] = x0;
  ExpertMlpArgs args = expert.Args(x, {}, out);
  const std::vector<int32_t> all = Iota(rows);
  args.x_rows = args.out_rows = all;
  args.beta = args.linear_beta = 1e30f;
  backend.ExpertMlp(args);
  return out.view().row(rows - 1)[cols - 1];
}

// gate = up = g: beta tanh(g / beta) sigmoid(g) linear_beta tanh(g / linear_beta) -> g^2 sigmoid(g) for |g| << beta.
TEST_P(ExpertInvariance, ScaleBytes0And254AreExactPowersOfTwo) {
  for (const int64_t rows : {1, 9}) {
    for (const int64_t cols : {512, 96}) {
      const auto backend = MakeCpu(GetParam());
      const float low = SingleWeight(*backend, 0, 0x1p+126f, rows, cols);  // g = 0.5
      EXPECT_NEAR(low, 0.25 / (1 + std::exp(-0.5)), 4e-6);
      const float next = SingleWeight(*backend, 1, 0x1p+125f, rows, cols);  // g = 0.5
      EXPECT_NEAR(next, 0.25 / (1 + std::exp(-0.5)), 4e-6);
      const float high = SingleWeight(*backend, 254, 0x1p-126f, rows, cols);  // g = 2
      EXPECT_NEAR(high, 4 / (1 + std::exp(-2.0)), 4e-6);
      const float subnormal_input = SingleWeight(*backend, 254, 0x1p-130f, rows, cols);  // g = 2^-3
      EXPECT_NEAR(subnormal_input, 0x1p-6 / (1 + std::exp(-0.125)), 1e-7);
    }
  }
}

// One input of a group of 32 is up to a million times as large as the others: sums keep the bound, whatever a kernel
// rounds its inputs to.
TEST_P(ExpertInvariance, InputsOfVeryDifferentSizesStayInsideTheWorstCaseBound) {
  for (const float large : {30.0f, 1000.0f, 1e6f}) {
    for (const int64_t rows : {1, 7}) {
      Random random(11);
      const Expert expert(random, 1120, 96, 3);
      Activations x(random, rows, 1120, 1 / large);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < 1120; c += 32) x.view().row(r)[c + random.Integer(0, 31)] = random.Normal();
      }
      Activations out(rows, 1120);
      MakeCpu(GetParam())->ExpertMlp(expert.Args(x, Iota(rows), out));
      std::vector<double> value(1120), bound(1120);
      for (int64_t r = 0; r < rows; ++r) {
        ExactRow(expert, x.view().row(r), value, bound);
        for (size_t n = 0; n < value.size(); ++n) {
          ASSERT_NEAR(out.view().row(r)[n], value[n], bound[n]) << "row " << r << " output " << n << " large " << large;
        }
      }
    }
  }
}

TEST_P(ExpertInvariance, AnInputThatIsNoNumberIsNotLost) {
  Random random(12);
  const Expert expert(random, 672, 96, 0);
  for (const int64_t rows : {1, 2, 3, 5, 8}) {
    for (const int64_t column : {0, 511, 512, 671}) {  // a block's first and last, and of what is left after it
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        Activations x(random, rows, 672), out(rows, 672);
        x.view().row(rows - 1)[column] = bad;
        MakeCpu(GetParam())->ExpertMlp(expert.Args(x, Iota(rows), out));
        const float* row = out.view().row(rows - 1);
        EXPECT_TRUE(std::any_of(row, row + 672, [](float v) { return !std::isfinite(v); })) << rows << " " << column;
        for (int64_t r = 0; r + 1 < rows; ++r) EXPECT_TRUE(std::isfinite(out.view().row(r)[0]));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExpertInvariance, testing::ValuesIn(Isas()), [](const auto& info) { return info.param; });

TEST(ReferenceExpert, AgreesWithADoublePrecisionFormula) {
  Random random(10);
  const Expert expert(random, 96, 64, 3);
  const Activations x(random, 2, 96);
  Activations out(2, 96);
  MakeReference()->ExpertMlp(expert.Args(x, Iota(2), out));
  std::vector<double> value(96), bound(96);
  for (int64_t r = 0; r < 2; ++r) {
    ExactRow(expert, x.view().row(r), value, bound);
    for (size_t n = 0; n < 96; ++n) ASSERT_NEAR(out.view().row(r)[n], value[n], 2e-7 * std::abs(value[n]) + 1e-12);
  }
}

}  // namespace
}  // namespace deltafin::test
