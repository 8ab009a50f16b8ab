// ShortConv, Kda, GatedHeadNorm and MlaAttend: against the reference, split at every point, on any number of threads.
//
// Tolerances of the recurrent and attention sums use the probabilistic rounding bound, sqrt(n) u instead of n u (Higham
// and Mary, 2019), times the norms involved, because the worst case over a sequence says nothing any more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend_fixture.h"

namespace deltafin::test {
namespace {

// ---- Kda ----

struct KdaOperands {
  int64_t heads, dim, rows;
  Activations q, k, v, raw_decay, raw_beta;
  Weight a_log, dt_bias;
  std::vector<float> state;

  KdaOperands(uint32_t seed, int64_t heads, int64_t dim, int64_t rows) : KdaOperands(Random(seed), heads, dim, rows) {}
  KdaOperands(Random random, int64_t heads, int64_t dim, int64_t rows)
      : heads(heads),
        dim(dim),
        rows(rows),
        q(random, rows, heads * dim, 1, heads * dim + 1),
        k(random, rows, heads * dim),
        v(random, rows, heads * dim),
        raw_decay(random, rows, heads * dim, 2),
        raw_beta(random, rows, heads, 2),
        a_log(Weight::F32(random, {heads + 5})),
        dt_bias(Weight::F32(random, {heads * dim})),
        state(random.Floats(heads * dim * dim)) {}

  // Rows [first, first + count).
  void Run(Backend& backend, std::vector<float>& state, Activations& out, int64_t first, int64_t count) const {
    if (count == 0) return;
    const std::vector<float> before = state;
    std::fill(state.begin(), state.end(), std::nanf(""));  // must not be read
    backend.Kda({q.view().Slice(first, count), k.view().Slice(first, count), v.view().Slice(first, count),
                 raw_decay.view().Slice(first, count), raw_beta.view().Slice(first, count), a_log.view(),
                 dt_bias.view(), -5.0f, heads, dim, before.data(), state.data(), out.view().Slice(first, count)});
  }
};

struct KdaCase {
  int64_t heads, dim, rows;
};
class KdaConformance : public testing::TestWithParam<std::tuple<std::string, KdaCase>> {};

// The recurrence contracts (alpha < 1, |k'| <= 1, beta < 1), so a column of the state stays below its first norm plus
// the values written to it, and rounding errors of (sqrt(d) + 16) u relative to that norm add up over the rows.
TEST_P(KdaConformance, FollowsTheReferenceRecurrence) {
  const auto& [isa, c] = GetParam();
  const KdaOperands operands(11, c.heads, c.dim, c.rows);
  std::vector<float> state = operands.state, expected_state = operands.state;
  Activations out(c.rows, c.heads * c.dim), expected(c.rows, c.heads * c.dim);
  operands.Run(*MakeCpu(isa, 2), state, out, 0, c.rows);
  operands.Run(*MakeReference(), expected_state, expected, 0, c.rows);
  const double norm = 1.5 * std::sqrt(static_cast<double>(c.dim)) + 4;  // of a column of normal variates, and of v
  const double bound = static_cast<double>(c.rows) * (std::sqrt(static_cast<double>(c.dim)) + 16) * kUnit * norm;
  for (size_t i = 0; i < state.size(); ++i) ASSERT_NEAR(state[i], expected_state[i], bound) << "state " << i;
  for (size_t i = 0; i < out.values.size(); ++i) ASSERT_NEAR(out.values[i], expected.values[i], bound) << "out " << i;
}

const KdaCase kKdaCases[] = {{96, 128, 2}, {3, 32, 17}, {4, 64, 8}, {2, 33, 5}, {1, 1, 3}, {2, 100, 1}};
INSTANTIATE_TEST_SUITE_P(All, KdaConformance, testing::Combine(testing::ValuesIn(Isas()), testing::ValuesIn(kKdaCases)),
                         [](const auto& info) {
                           const KdaCase& c = std::get<1>(info.param);
                           return Cat(std::get<0>(info.param), "_", c.heads, "x", c.dim, "_rows", c.rows);
                         });

class SequenceInvariance : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, SequenceInvariance, testing::ValuesIn(Isas()),
                         [](const auto& info) { return info.param; });

TEST_P(SequenceInvariance, KdaSplitAtAnyPointOnAnyThreadsHasTheSameBits) {
  const int64_t rows = 9;
  const KdaOperands operands(12, 5, 48, rows);
  std::vector<float> whole_state = operands.state;
  Activations whole(rows, 5 * 48);
  operands.Run(*MakeCpu(GetParam()), whole_state, whole, 0, rows);
  for (int64_t split = 0; split <= rows; ++split) {
    std::vector<float> state = operands.state;
    Activations out(rows, 5 * 48);
    const auto backend = MakeCpu(GetParam(), 1 + static_cast<int>(split) % 4);
    operands.Run(*backend, state, out, 0, split);
    operands.Run(*backend, state, out, split, rows - split);
    ASSERT_TRUE(SameBits(out.values, whole.values) && SameBits(state, whole_state)) << "split after row " << split;
  }
}

// One head, d = 2, zero state, k along the first axis: S = beta k' v^T, out = S^T q'.
TEST(ReferenceKda, ComputesOneStepByHand) {
  const std::vector<float> q = {3, 4}, k = {2, 0}, v = {10, -6}, decay = {0, 0}, beta = {0}, a_log = {0, 9},
                           dt = {0, 0};
  std::vector<float> state(4);
  Activations out(1, 2);
  const auto f32 = [](const std::vector<float>& x) {
    return TensorView{reinterpret_cast<const std::byte*>(x.data()), DType::kF32, {static_cast<int64_t>(x.size())}};
  };
  MakeReference()->Kda({{q.data(), 1, 2},
                        {k.data(), 1, 2},
                        {v.data(), 1, 2},
                        {decay.data(), 1, 2},
                        {beta.data(), 1, 1},
                        f32(a_log),
                        f32(dt),
                        -5.0f,
                        1,
                        2,
                        state.data(),
                        state.data(),
                        out.view()});
  const double k_unit = 2 / std::sqrt(4 + 1e-6), q0 = 3 / std::sqrt(25 + 1e-6) / std::sqrt(2.0);
  EXPECT_NEAR(state[0], 0.5 * k_unit * 10, 1e-6);
  EXPECT_NEAR(state[1], 0.5 * k_unit * -6, 1e-6);
  EXPECT_EQ(state[2], 0);
  EXPECT_NEAR(out.values[0], q0 * 0.5 * k_unit * 10, 1e-6);
  EXPECT_NEAR(out.values[1], q0 * 0.5 * k_unit * -6, 1e-6);
}

// Second step from a known state: alpha = exp(lower_bound * sigmoid(rate * (raw + dt))), then the delta rule.
TEST(ReferenceKda, DecaysThenCorrectsTheStoredValue) {
  const std::vector<float> q = {1}, k = {1}, v = {2}, decay = {0.3f}, beta = {1}, a_log = {0.5f}, dt = {0.2f};
  std::vector<float> state = {4};
  Activations out(1, 1);
  const auto f32 = [](const std::vector<float>& x) {
    return TensorView{reinterpret_cast<const std::byte*>(x.data()), DType::kF32, {static_cast<int64_t>(x.size())}};
  };
  MakeReference()->Kda({{q.data(), 1, 1},
                        {k.data(), 1, 1},
                        {v.data(), 1, 1},
                        {decay.data(), 1, 1},
                        {beta.data(), 1, 1},
                        f32(a_log),
                        f32(dt),
                        -5.0f,
                        1,
                        1,
                        state.data(),
                        state.data(),
                        out.view()});
  const double alpha = std::exp(-5.0 / (1 + std::exp(-std::exp(0.5) * 0.5)));
  const double b = 1 / (1 + std::exp(-1.0)), s = 4 * alpha, unit = 1 / std::sqrt(1 + 1e-6);
  EXPECT_NEAR(state[0], s + b * unit * (2 - unit * s), 1e-6);
}

// ---- ShortConv ----

TEST(ReferenceShortConv, MixesTheTailWithNewRows) {
  std::vector<float> tail = {1, 2};                   // two rows of one channel
  const std::vector<float> kernel = {10, 100, 1000};  // the last tap multiplies the current row
  const std::vector<float> x = {-3, 0.5f};
  Activations out(2, 1);
  const TensorView taps = {reinterpret_cast<const std::byte*>(kernel.data()), DType::kF32, {1, 1, 3}};
  MakeReference()->ShortConv({{x.data(), 2, 1}, taps, {tail.data(), 2, 1}, {tail.data(), 2, 1}, out.view()});
  EXPECT_NEAR(out.values[0], 0, 1e-30);   // silu(10 + 200 - 3000)
  EXPECT_NEAR(out.values[1], 220, 1e-4);  // silu(20 - 300 + 500)
  EXPECT_EQ(tail, (std::vector<float>{-3, 0.5f}));
}

struct ConvOperands {
  Activations x, tail;
  Weight kernel;
  explicit ConvOperands(Random random, int64_t rows, int64_t channels, int64_t taps)
      : x(random, rows, channels, 1, channels + 2),
        tail(random, taps - 1, channels),
        kernel(Weight::F32(random, {channels, 1, taps})) {}
};

TEST_P(SequenceInvariance, ShortConvMatchesTheReference) {
  const ConvOperands operands(Random(13), 6, 12288, 4);
  Activations out(6, 12288), expected(6, 12288), tail = operands.tail, expected_tail = operands.tail;
  MakeCpu(GetParam(), 2)->ShortConv({operands.x.view(), operands.kernel.view(), tail.view(), tail.view(), out.view()});
  MakeReference()->ShortConv(
      {operands.x.view(), operands.kernel.view(), expected_tail.view(), expected_tail.view(), expected.view()});
  EXPECT_EQ(tail.values, expected_tail.values);
  // Four products of normal variates (magnitude below 4 * 25), 8 roundings, silu slope below 1.1.
  for (size_t i = 0; i < out.values.size(); ++i) ASSERT_NEAR(out.values[i], expected.values[i], 8 * kUnit * 100) << i;
}

TEST_P(SequenceInvariance, ShortConvSplitAtAnyPointHasTheSameBits) {
  for (const int64_t channels : {1, 33, 200}) {
    const ConvOperands operands(Random(14), 7, channels, 4);
    Activations whole(7, channels), whole_tail = operands.tail;
    MakeCpu(GetParam())
        ->ShortConv({operands.x.view(), operands.kernel.view(), whole_tail.view(), whole_tail.view(), whole.view()});
    for (int64_t split = 0; split <= 7; ++split) {
      Activations out(7, channels), tail = operands.tail;
      const auto backend = MakeCpu(GetParam(), 1 + static_cast<int>(split) % 4);
      for (const auto& [first, count] : {std::pair{int64_t{0}, split}, std::pair{split, 7 - split}}) {
        backend->ShortConv({operands.x.view().Slice(first, count), operands.kernel.view(), tail.view(), tail.view(),
                            out.view().Slice(first, count)});
      }
      ASSERT_TRUE(SameBits(out.values, whole.values) && SameBits(tail.values, whole_tail.values))
          << channels << " channels, split after row " << split;
    }
  }
}

// ---- MlaAttend ----

struct MlaCase {
  int64_t heads, nope, rope, v_dim, latent, first_position, rows;
};

struct MlaOperands {
  MlaCase c;
  Activations q, cache;
  Weight kv_b_proj;

  MlaOperands(Random random, MlaCase c)
      : c(c),
        q(random, c.rows, c.heads * (c.nope + c.rope)),
        cache(random, c.first_position + c.rows, c.latent + c.rope, 1, c.latent + c.rope + 3),
        kv_b_proj(Weight::Bf16(random, {c.heads * (c.nope + c.v_dim), c.latent},
                               1 / std::sqrt(static_cast<float>(c.latent)))) {}

  // With the whole cache in one page.
  void Run(Backend& backend, Activations& out, int64_t first, int64_t count) const {
    const int64_t position = c.first_position + first;
    const float* page = cache.view().data;
    Attend(backend, out, first, count, {&page, 1 << 20, 0, position + count, cache.view().width, cache.view().stride});
  }

  void Attend(Backend& backend, Activations& out, int64_t first, int64_t count, const PagedRows& rows) const {
    backend.MlaAttend({q.view().Slice(first, count), kv_b_proj.view(), rows, c.first_position + first, c.heads, c.nope,
                       c.rope, c.v_dim, c.latent, out.view().Slice(first, count)});
  }
};

class MlaConformance : public testing::TestWithParam<std::tuple<std::string, MlaCase>> {};

// Scores are of order 1 to 4 here and carry (sqrt(nope) + sqrt(latent + rope) + 16) u times the product of the norms of
// ql and the key, about sqrt(nope) and sqrt(latent + rope), over sqrt(nope + rope); a score error e changes weights by
// the factor 1 + e. Outputs are of order 1.
TEST_P(MlaConformance, StaysNearTheReference) {
  const auto& [isa, c] = GetParam();
  const MlaOperands operands(Random(15), c);
  Activations out(c.rows, c.heads * c.v_dim), expected(c.rows, c.heads * c.v_dim);
  operands.Run(*MakeCpu(isa, 2), out, 0, c.rows);
  operands.Run(*MakeReference(), expected, 0, c.rows);
  const double width = static_cast<double>(c.latent + c.rope);
  const double roundings = std::sqrt(static_cast<double>(c.nope)) + std::sqrt(width) + 16;
  const double norms = std::sqrt(static_cast<double>(c.nope) * width / static_cast<double>(c.nope + c.rope));
  const double bound = roundings * kUnit * (4 + norms) * 4;
  for (size_t i = 0; i < out.values.size(); ++i) ASSERT_NEAR(out.values[i], expected.values[i], bound) << "out " << i;
}

const MlaCase kMlaCases[] = {{96, 128, 64, 128, 512, 70, 1}, {4, 128, 64, 128, 512, 1000, 5},
                             {4, 64, 32, 64, 64, 0, 70},     {3, 32, 16, 24, 40, 61, 9},
                             {2, 8, 0, 5, 33, 127, 3},       {1, 1, 1, 1, 1, 0, 2}};
INSTANTIATE_TEST_SUITE_P(All, MlaConformance, testing::Combine(testing::ValuesIn(Isas()), testing::ValuesIn(kMlaCases)),
                         [](const auto& info) {
                           const MlaCase& c = std::get<1>(info.param);
                           return Cat(std::get<0>(info.param), "_", c.heads, "heads_latent", c.latent, "_at",
                                      c.first_position, "_rows", c.rows);
                         });

TEST_P(SequenceInvariance, MlaSplitAtAnyPointOnAnyThreadsHasTheSameBits) {
  const int64_t rows = 21;
  const MlaOperands operands(Random(16), {5, 32, 16, 24, 48, 55, rows});
  Activations whole(rows, 5 * 24);
  operands.Run(*MakeCpu(GetParam()), whole, 0, rows);
  for (int64_t split = 0; split <= rows; ++split) {
    Activations out(rows, 5 * 24);
    const auto backend = MakeCpu(GetParam(), 1 + static_cast<int>(split) % 4);
    operands.Run(*backend, out, 0, split);
    operands.Run(*backend, out, split, rows - split);
    ASSERT_TRUE(SameBits(out.values, whole.values)) << "split after row " << split;
  }
}

// Pages in any order in memory, each with something before its rows and exactly as long as it must be.
TEST_P(SequenceInvariance, MlaCacheInPagesHasTheBitsOfOnePiece) {
  const int64_t rows = 70;
  const MlaOperands operands(Random(20), {3, 16, 8, 16, 32, 250, rows});
  const int64_t width = 40, before = 7;
  Activations whole(rows, 3 * 16), paged(rows, 3 * 16);
  for (const auto& backend : {MakeCpu(GetParam(), 2), MakeReference()}) {
    operands.Run(*backend, whole, 0, rows);
    for (const int64_t page_rows : {64, 128, 320}) {
      std::vector<std::vector<float>> memory;
      for (int64_t at = 0; at < 250 + rows; at += page_rows) {
        std::vector<float>& page = memory.emplace_back(before, -1e30f);
        for (int64_t r = at; r < std::min(at + page_rows, 250 + rows); ++r)
          page.insert(page.end(), operands.cache.view().row(r), operands.cache.view().row(r) + width);
      }
      std::vector<const float*> pages;
      for (const std::vector<float>& page : memory) pages.push_back(page.data());
      operands.Attend(*backend, paged, 0, rows, {pages.data(), page_rows, before, 250 + rows, width, width});
      EXPECT_TRUE(SameBits(whole.values, paged.values)) << page_rows << " rows a page";
    }
  }
}

TEST_P(SequenceInvariance, MlaCacheInBf16HasTheBitsOfItsValuesInFloat32) {
  const int64_t rows = 9, past = 150, width = 40 + 7;
  MlaOperands operands(Random(21), {3, 16, 7, 16, 40, past, rows});
  // The page of 192 rows that the operation may look at whole.
  std::vector<uint16_t> page(static_cast<size_t>(192 * width), 0x7fc0);
  for (int64_t r = 0; r < past + rows; ++r) {
    for (int64_t c = 0; c < width; ++c) {
      float& value = operands.cache.view().row(r)[c];
      page[static_cast<size_t>(r * width + c)] = FloatToBf16(value);
      value = Bf16ToFloat(FloatToBf16(value));
    }
  }
  const uint16_t* pages = page.data();
  const PagedRows cache{.pages = nullptr,
                        .page_rows = 192,
                        .offset = 0,
                        .rows = past + rows,
                        .width = width,
                        .stride = width,
                        .bf16_pages = &pages};
  Activations wide(rows, 3 * 16), narrow(rows, 3 * 16);
  for (const auto& backend : {MakeCpu(GetParam(), 2), MakeReference()}) {
    operands.Run(*backend, wide, 0, rows);
    operands.Attend(*backend, narrow, 0, rows, cache);
    EXPECT_TRUE(SameBits(wide.values, narrow.values)) << backend->name();
  }
}

TEST_P(SequenceInvariance, MlaRowsAloneFarIntoTheContextHaveTheBitsOfTheBatch) {
  const int64_t rows = 4;
  const MlaOperands operands(Random(17), {2, 16, 8, 16, 32, 20000, rows});
  Activations together(rows, 2 * 16), alone(rows, 2 * 16);
  const auto backend = MakeCpu(GetParam(), 2);
  operands.Run(*backend, together, 0, rows);
  for (int64_t r = 0; r < rows; ++r) operands.Run(*backend, alone, r, 1);
  EXPECT_TRUE(SameBits(together.values, alone.values));
}

// Scores in the hundreds: exponentials of the raw scores would overflow.
TEST_P(SequenceInvariance, MlaPicksTheLargestScoreWhenScoresAreHuge) {
  const MlaCase c = {1, 2, 0, 1, 2, 129, 1};
  MlaOperands operands(Random(18), c);
  operands.kv_b_proj.bf16 = {FloatToBf16(1), 0, 0, FloatToBf16(1),
                             FloatToBf16(1), 0};  // K = identity, V = first channel
  operands.q.values = {1000, 0, 0};
  for (int64_t j = 0; j < 130; ++j) operands.cache.view().row(j)[0] = j == 77 ? 3.0f : -2.0f;
  Activations out(1, 1);
  operands.Run(*MakeCpu(GetParam()), out, 0, 1);
  EXPECT_EQ(out.values[0], 3.0f);
}

TEST(ReferenceMla, AveragesTheVisibleLatentsWhenScoresAreEqual) {
  const MlaCase c = {1, 1, 1, 1, 2, 2, 1};
  MlaOperands operands(Random(19), c);
  operands.kv_b_proj.bf16 = {0, 0, FloatToBf16(2), FloatToBf16(1)};  // no nope score; V = 2 a + b
  operands.q.values = {5, 0, 0};                                     // no rope score
  const float latents[3][2] = {{1, 2}, {3, 4}, {5, 9}};
  for (int64_t j = 0; j < 3; ++j) std::copy_n(latents[j], 2, operands.cache.view().row(j));
  Activations out(1, 1);
  operands.Run(*MakeReference(), out, 0, 1);
  EXPECT_FLOAT_EQ(out.values[0], (2 * 9 + 15) / 3.0f);
}

}  // namespace
}  // namespace deltafin::test
