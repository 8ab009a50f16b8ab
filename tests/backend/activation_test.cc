// Norms, gates, AttnRes, router and the elementwise operations, against the reference and formulas, and their
// invariance.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend_fixture.h"

namespace deltafin::test {
namespace {

class Activation : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend_ = MakeCpu(GetParam(), 3);
  std::unique_ptr<Backend> reference_ = MakeReference();
};
INSTANTIATE_TEST_SUITE_P(All, Activation, testing::ValuesIn(Isas()), [](const auto& info) { return info.param; });

// Relative error against the expected value; `floor` is the size below which the error counts as absolute.
void ExpectRelative(const std::vector<float>& actual, const std::vector<float>& expected, double relative,
                    double floor) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], relative * std::max(floor, std::abs(static_cast<double>(expected[i])))) << i;
  }
}

// 2^20 values over the whole range of float32 magnitudes, both signs.
Activations EveryMagnitude() {
  Activations x(16, 1 << 14);
  const auto n = static_cast<double>(16 << 14);
  for (size_t i = 0; i + 1 < x.values.size(); ++i) {
    const double exponent = -126 + 253 * static_cast<double>(i) / n;
    x.values[i] = static_cast<float>(std::exp2(exponent)) * (i % 2 == 0 ? 1.0f : -1.0f);
  }
  return x;
}

TEST_P(Activation, SigmoidIsAccurateAtEveryMagnitudeAndNeverOverflows) {
  const Activations gate = EveryMagnitude();
  Activations x(gate.rows, gate.width);
  std::fill(x.values.begin(), x.values.end(), 1.0f);
  backend_->SigmoidGate({x.view(), gate.view()});
  for (size_t i = 0; i + 1 < x.values.size(); ++i) {
    const double expected = 1 / (1 + std::exp(-static_cast<double>(gate.values[i])));
    ASSERT_NEAR(x.values[i], expected, 1e-6 * expected + 1.5e-45) << gate.values[i];
  }
}

TEST_P(Activation, TanhIsAccurateAtEveryMagnitudeAndNeverOverflows) {
  const Activations up = EveryMagnitude();
  Activations gate(up.rows, up.width), out(up.rows, up.width);
  std::fill(gate.values.begin(), gate.values.end(), 1.0f);
  backend_->SituGlu({gate.view(), up.view(), 1.0f, 1.0f, out.view()});
  const double factor = std::tanh(1.0) / (1 + std::exp(-1.0));
  for (size_t i = 0; i + 1 < out.values.size(); ++i) {
    const double expected = factor * std::tanh(static_cast<double>(up.values[i]));
    ASSERT_NEAR(out.values[i], expected, 1.5e-6 * std::abs(expected) + 1.5e-45) << up.values[i];
  }
}

TEST_P(Activation, GatesSaturateOnInfinityAndKeepNaN) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  Activations gate(1, 4), up(1, 4), out(1, 4);
  gate.values = {infinity, -infinity, 1e38f, nan, 0};
  up.values = {1e38f, 1e38f, -infinity, 1, 0};
  backend_->SituGlu({gate.view(), up.view(), 4.0f, 25.0f, out.view()});
  EXPECT_EQ(out.values[0], 100.0f);
  EXPECT_EQ(out.values[1], 0.0f);
  EXPECT_EQ(out.values[2], -100.0f);
  EXPECT_TRUE(std::isnan(out.values[3]));
}

TEST_P(Activation, SituGluMatchesTheReferenceAndMayOverwriteItsGate) {
  Random random(20);
  for (const int64_t width : {1, 33, 3072}) {
    Activations gate(random, 3, width, 8), expected(3, width);
    const Activations up(random, 3, width, 30);
    reference_->SituGlu({gate.view(), up.view(), 4, 25, expected.view()});
    backend_->SituGlu({gate.view(), up.view(), 4, 25, gate.view()});
    gate.values.back() = 0;
    ExpectRelative(gate.values, expected.values, 3e-6, 1e-30);
  }
}

// Sum of squares: (width / lanes + 16) roundings of one sign, halved by the root; then three products.
TEST_P(Activation, RmsNormMatchesTheReferenceAndMayOverwriteItsInput) {
  Random random(21);
  for (const int64_t width : {1, 33, 512, 7168}) {
    for (const bool is_f32 : {false, true}) {
      const Weight weight = is_f32 ? Weight::F32(random, {width}) : Weight::Bf16(random, {width});
      Activations x(random, 5, width, 3), expected(5, width);
      reference_->RmsNorm({x.view(), weight.view(), 1e-5f, expected.view()});
      backend_->RmsNorm({x.view(), weight.view(), 1e-5f, x.view()});
      x.values.back() = 0;
      ExpectRelative(x.values, expected.values, (static_cast<double>(width) / 32 + 16) * kUnit, 1e-30);
    }
  }
}

TEST(ReferenceRmsNorm, ComputesASmallRowByHand) {
  Activations x(1, 2), out(1, 2);
  x.values = {3, 4, 0};
  const std::vector<float> w = {1, 2};
  MakeReference()->RmsNorm(
      {x.view(), {reinterpret_cast<const std::byte*>(w.data()), DType::kF32, {2}}, 0.5f, out.view()});
  EXPECT_FLOAT_EQ(out.values[0], 3 / std::sqrt(13.0f));
  EXPECT_FLOAT_EQ(out.values[1], 8 / std::sqrt(13.0f));
}

TEST_P(Activation, GatedHeadNormMatchesTheReference) {
  Random random(22);
  for (const auto& [heads, dim] : {std::pair{96, 128}, {3, 32}, {2, 33}}) {
    const Weight weight = Weight::F32(random, {dim});
    const Activations x(random, 3, heads * dim), gate(random, 3, heads * dim, 3);
    Activations out(3, heads * dim), expected(3, heads * dim);
    backend_->GatedHeadNorm({x.view(), gate.view(), weight.view(), 1e-5f, heads, out.view()});
    reference_->GatedHeadNorm({x.view(), gate.view(), weight.view(), 1e-5f, heads, expected.view()});
    ExpectRelative(out.values, expected.values, (dim / 32.0 + 40) * kUnit, 1e-30);
  }
}

// Scores are of order 1 (unit candidates against a direction of norm 1) and carry DotBound-like errors relative to the
// norms.
TEST_P(Activation, MixResidualsMatchesTheReference) {
  Random random(23);
  for (const int64_t width : {33, 7168}) {
    for (const size_t count : {1u, 8u, 40u}) {
      const Weight proj = Weight::Bf16(random, {1, width}, 1 / std::sqrt(static_cast<float>(width)));
      const Weight norm = Weight::Bf16(random, {width});
      std::vector<Activations> blocks;
      for (size_t i = 0; i < count; ++i) blocks.emplace_back(random, 3, width, 2);
      std::vector<ConstRows> views;
      for (const Activations& block : blocks) views.push_back(block.view());
      const Activations prefix_sum(random, 3, width);
      Activations out(3, width), expected(3, width);
      backend_->MixResiduals({views, prefix_sum.view(), proj.view(), norm.view(), 1e-5f, out.view()});
      reference_->MixResiduals({views, prefix_sum.view(), proj.view(), norm.view(), 1e-5f, expected.view()});
      const double bound = (std::sqrt(static_cast<double>(width)) + static_cast<double>(count) + 16) * kUnit * 8;
      for (size_t i = 0; i < out.values.size(); ++i) ASSERT_NEAR(out.values[i], expected.values[i], bound) << i;
    }
  }
}

// Candidates (1, 0) and (0, 1) normalise to (sqrt 2, 0) and (0, sqrt 2); direction (a, 0) scores them sqrt 2 a and 0.
TEST(ReferenceMixResiduals, ComputesTwoCandidatesByHand) {
  Activations block(1, 2), prefix_sum(1, 2), out(1, 2);
  block.values = {1, 0, 0};
  prefix_sum.values = {0, 1, 0};
  Weight proj, norm;
  proj.shape = {1, 2}, norm.shape = {2};
  proj.bf16 = {FloatToBf16(0.5f), 0}, norm.bf16 = {FloatToBf16(2), FloatToBf16(1)};
  const ConstRows blocks[] = {block.view()};
  MakeReference()->MixResiduals({blocks, prefix_sum.view(), proj.view(), norm.view(), 0.0f, out.view()});
  const double e = std::exp(std::sqrt(2.0));
  EXPECT_NEAR(out.values[0], e / (e + 1), 1e-7);
  EXPECT_NEAR(out.values[1], 1 / (e + 1), 1e-7);
}

TEST_P(Activation, RowOperationsGiveEachRowTheSameBitsAloneAndInABatch) {
  Random random(24);
  const int64_t rows = 9, width = 77;
  const Weight weight = Weight::Bf16(random, {width}), proj = Weight::Bf16(random, {1, width});
  const Activations x(random, rows, width), gate(random, rows, width);
  const auto run = [&](int64_t first, int64_t count, Activations& norm, Activations& mix, Activations& situ) {
    backend_->RmsNorm({x.view().Slice(first, count), weight.view(), 1e-5f, norm.view().Slice(first, count)});
    const ConstRows blocks[] = {gate.view().Slice(first, count)};
    backend_->MixResiduals(
        {blocks, x.view().Slice(first, count), proj.view(), weight.view(), 1e-5f, mix.view().Slice(first, count)});
    backend_->SituGlu(
        {gate.view().Slice(first, count), x.view().Slice(first, count), 4, 25, situ.view().Slice(first, count)});
  };
  Activations norm(rows, width), mix(rows, width), situ(rows, width), norm1(rows, width), mix1(rows, width),
      situ1(rows, width);
  run(0, rows, norm, mix, situ);
  for (int64_t r = 0; r < rows; ++r) run(r, 1, norm1, mix1, situ1);
  EXPECT_TRUE(SameBits(norm.values, norm1.values));
  EXPECT_TRUE(SameBits(mix.values, mix1.values));
  EXPECT_TRUE(SameBits(situ.values, situ1.values));
}

// ---- Router ----

struct Routes {
  Activations scores;
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Routes Route(Backend& backend, const Weight& weight, const Weight& bias, const Activations& x, int64_t top_k) {
  Routes out = {Activations(x.rows, weight.shape[0]), std::vector<int32_t>(static_cast<size_t>(x.rows * top_k)),
                std::vector<float>(static_cast<size_t>(x.rows * top_k))};
  backend.Router({x.view(), weight.view(), bias.view(), top_k, 2.5f, out.scores.view(), out.ids, out.weights});
  return out;
}

TEST_P(Activation, RouterMatchesTheReference) {
  Random random(25);
  const Weight weight = Weight::Bf16(random, {896, 7168}, 0.01f), bias = Weight::F32(random, {896}, 0.1f);
  const Activations x(random, 3, 7168);
  const Routes actual = Route(*backend_, weight, bias, x, 16), expected = Route(*reference_, weight, bias, x, 16);
  EXPECT_EQ(actual.ids, expected.ids);
  // Scores: worst-case dot error (7168 / 4 + 16) u * sum|w x| (below 60), slope 1/4; weights: 16 of them normalised.
  ExpectRelative(actual.scores.values, expected.scores.values, (7168 / 4 + 16) * kUnit * 60 / 4, 1);
  ExpectRelative(actual.weights, expected.weights, 1e-4, 1e-30);
}

TEST_P(Activation, RouterTiesGoToTheLowerIndexAndTheBiasOnlySteersTheChoice) {
  Weight weight = Weight{}, bias = Weight{};
  weight.shape = {40, 1}, bias.shape = {40};
  weight.bf16.assign(40, FloatToBf16(1));
  bias.f32.assign(40, 0.0f);
  bias.f32[30] = bias.f32[7] = 1;
  Activations x(1, 1);
  x.values[0] = 0;
  for (Backend* backend : {backend_.get(), reference_.get()}) {
    const Routes routes = Route(*backend, weight, bias, x, 5);
    EXPECT_EQ(routes.ids, (std::vector<int32_t>{7, 30, 0, 1, 2})) << backend->name();
    for (const float w : routes.weights) EXPECT_FLOAT_EQ(w, 0.5f) << backend->name();  // 2.5 / 5
  }
}

TEST_P(Activation, RouterIdsStayDistinctAndInRangeWhateverTheInput) {
  Random random(26);
  const Weight weight = Weight::Bf16(random, {20, 8}), bias = Weight::F32(random, {20});
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -3e38f}) {
    Activations x(random, 2, 8);
    x.values[3] = bad;
    for (Backend* backend : {backend_.get(), reference_.get()}) {
      const Routes routes = Route(*backend, weight, bias, x, 20);
      std::vector<int32_t> sorted(routes.ids.begin(), routes.ids.begin() + 20);
      std::sort(sorted.begin(), sorted.end());
      for (int32_t e = 0; e < 20; ++e)
        ASSERT_EQ(sorted[static_cast<size_t>(e)], e) << backend->name() << " with " << bad;
    }
  }
}

// ---- Plain moves and sums ----

TEST_P(Activation, CombineExpertsSumsInTheGivenOrder) {
  Random random(27);
  const Activations partial(random, 6, 50);
  const std::vector<float> weights = {0.5f, 0.25f, 2, 1, -1, 3};
  const std::vector<int32_t> order = {2, 0, 1, 1, 2, 0};
  Activations out(2, 50), expected(2, 50);
  backend_->CombineExperts({partial.view(), weights, order, 3, out.view()});
  for (int64_t r = 0; r < 2; ++r) {
    for (int64_t c = 0; c < 50; ++c) {
      double sum = 0, size = 0;
      for (int64_t j = 0; j < 3; ++j) {
        const double term =
            static_cast<double>(weights[static_cast<size_t>(r * 3 + j)]) * partial.view().row(r * 3 + j)[c];
        sum += term, size += std::abs(term);
      }
      ASSERT_NEAR(out.view().row(r)[c], sum, 3 * kUnit * size);
    }
  }
  reference_->CombineExperts({partial.view(), weights, order, 3, expected.view()});
  ExpectRelative(out.values, expected.values, 6 * kUnit, 8);
}

TEST_P(Activation, ExpertsAddedOneByOneGiveTheBitsOfTheirSum) {
  constexpr int64_t kRows = 5, kTopK = 3, kExperts = 7, kWidth = 53;
  Random random(29);
  const Activations partial(random, kRows * kTopK, kWidth);
  std::vector<float> weights;
  for (int64_t i = 0; i < kRows * kTopK; ++i)
    weights.push_back((i % 2 == 0 ? 0.1f : -0.3f) * static_cast<float>(i + 1));
  // Experts of each row, in the order of its slots, and its slots by ascending expert.
  const std::vector<int32_t> experts = {6, 0, 3, 1, 2, 0, 5, 4, 6, 0, 6, 1, 3, 2, 4};
  const std::vector<int32_t> order = {1, 2, 0, 2, 0, 1, 1, 0, 2, 0, 2, 1, 1, 0, 2};
  Activations sum(kRows, kWidth), added(random, kRows, kWidth);
  backend_->CombineExperts({partial.view(), weights, order, kTopK, sum.view()});
  for (int32_t e = 0; e < kExperts; ++e) {
    std::vector<int32_t> routes;
    for (size_t i = 0; i < experts.size(); ++i)
      if (experts[i] == e) routes.push_back(static_cast<int32_t>(i));
    Activations own(static_cast<int64_t>(routes.size()), kWidth);
    for (size_t i = 0; i < routes.size(); ++i)
      std::copy_n(partial.view().row(routes[i]), kWidth, own.view().row(static_cast<int64_t>(i)));
    backend_->AddExpert({own.view(), routes, weights, order, kTopK, added.view()});
  }
  added.values.back() = sum.values.back();  // behind the last row
  EXPECT_TRUE(SameBits(added.values, sum.values));
}

TEST_P(Activation, StoreKeepsFloat32AndRoundsToTheNearestBf16) {
  Random random(30);
  Activations x(random, 4, 21, 1, 24);
  x.view().row(1)[3] = 1.00390625f;  // half way between two: the even one
  x.view().row(2)[0] = -0.0f;
  std::vector<float> f32(4 * 21);
  std::vector<uint16_t> bf16(4 * 21);
  backend_->Store({x.view(), {f32.data(), nullptr, 4, 21}});
  backend_->Store({x.view(), {nullptr, bf16.data(), 4, 21}});
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t c = 0; c < 21; ++c) {
      const auto at = static_cast<size_t>(r * 21 + c);
      const float value = x.view().row(r)[c];
      ASSERT_EQ(f32[at], value);
      const float lower = Bf16ToFloat(static_cast<uint16_t>(bf16[at] - 1)),
                  upper = Bf16ToFloat(static_cast<uint16_t>(bf16[at] + 1));
      const float kept = Bf16ToFloat(bf16[at]);
      if (value != 0) {
        ASSERT_LE(std::abs(kept - value), std::min(std::abs(lower - value), std::abs(upper - value)));
      }
    }
  }
  EXPECT_EQ(bf16[21 + 3], 0x3f80);
  EXPECT_EQ(bf16[42], 0x8000);
}

TEST_P(Activation, EmbedCopyAndAddAreExact) {
  Random random(28);
  const Weight table = Weight::Bf16(random, {11, 37});
  const std::vector<TokenId> ids = {10, 0, 3};
  Activations rows(3, 37, 41), copy(3, 37), expected(3, 37);
  backend_->Embed({table.view(), ids, rows.view()});
  reference_->Embed({table.view(), ids, expected.view()});
  backend_->Copy({rows.view(), copy.view()});
  EXPECT_TRUE(SameBits(copy.values, expected.values));
  EXPECT_EQ(copy.view().row(1)[5], static_cast<float>(table.at(5)));
  backend_->Add({rows.view(), copy.view()});
  for (int64_t i = 0; i < 3 * 37; ++i) {
    ASSERT_EQ(copy.values[static_cast<size_t>(i)], 2 * expected.values[static_cast<size_t>(i)]);
  }
}

}  // namespace
}  // namespace deltafin::test
