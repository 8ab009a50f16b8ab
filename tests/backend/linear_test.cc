// Linear and LinearGroup against the reference, and their row invariance.
#include <gtest/gtest.h>

#include "backend_fixture.h"

namespace deltafin::test {
namespace {

struct LinearCase {
  int64_t outputs, inner, rows;
  bool is_f32;
};

std::string CaseName(const LinearCase& c) {
  return Cat(c.outputs, "x", c.inner, "_rows", c.rows, c.is_f32 ? "_f32" : "_bf16");
}

class LinearConformance : public testing::TestWithParam<std::tuple<std::string, LinearCase>> {};

TEST_P(LinearConformance, StaysInsideTheWorstCaseBound) {
  const auto& [isa, c] = GetParam();
  Random random(1);
  const Shape shape = {c.outputs, c.inner};
  const Weight weight = c.is_f32 ? Weight::F32(random, shape, 0.02f) : Weight::Bf16(random, shape, 0.02f);
  const Activations x(random, c.rows, c.inner);
  Activations out(c.rows, c.outputs), expected(c.rows, c.outputs);
  MakeCpu(isa, 2)->Linear({weight.view(), x.view(), out.view()});
  MakeReference()->Linear({weight.view(), x.view(), expected.view()});
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t n = 0; n < c.outputs; ++n) {
      double magnitude = 0;
      for (int64_t k = 0; k < c.inner; ++k) magnitude += std::abs(weight.at(n * c.inner + k) * x.view().row(r)[k]);
      ASSERT_NEAR(out.view().row(r)[n], expected.view().row(r)[n], DotBound(c.inner, magnitude))
          << "row " << r << " output " << n;
    }
  }
}

const LinearCase kLinearCases[] = {
    {3072, 3584, 1, false}, {640, 7168, 2, false}, {130, 7168, 17, false}, {96, 7168, 64, false}, {1, 33, 1, false},
    {1, 33, 5, false},      {7, 96, 3, false},     {13, 96, 8, false},     {5, 1, 2, false},      {37, 1000, 5, false},
    {24, 512, 66, false},   {19, 545, 4, false},   {896, 7168, 1, true},   {7, 33, 3, true},      {25, 1000, 8, true}};

INSTANTIATE_TEST_SUITE_P(All, LinearConformance,
                         testing::Combine(testing::ValuesIn(Isas()), testing::ValuesIn(kLinearCases)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + CaseName(std::get<1>(info.param));
                         });

class LinearInvariance : public testing::TestWithParam<std::string> {};

// Expected: every row computed alone by one thread.
TEST_P(LinearInvariance, ARowHasTheSameBitsInAnyBatchAtAnyPlaceOnAnyThreads) {
  Random random(2);
  const int64_t inner = 1130, outputs = 131, rows = 70;  // more than two strips of outputs, three spans of columns
  const Weight weight = Weight::Bf16(random, {outputs, inner}, 0.05f);
  Activations x(random, rows, inner, 1, inner + 3);
  Activations alone(rows, outputs);
  const auto single = MakeCpu(GetParam(), 1);
  for (int64_t r = 0; r < rows; ++r) single->Linear({weight.view(), x.view().Slice(r, 1), alone.view().Slice(r, 1)});
  for (const int threads : {1, 2, 3, 4}) {
    const auto backend = MakeCpu(GetParam(), threads);
    for (const int64_t count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 33, 64, 70}) {
      Activations out(rows, outputs);
      const int64_t first = (rows - count) / 2;
      backend->Linear({weight.view(), x.view().Slice(first, count), out.view().Slice(first, count)});
      ASSERT_TRUE(SameBits(out.view().row(first), alone.view().row(first), count * outputs))
          << threads << " threads, " << count << " rows";
    }
  }
}

TEST_P(LinearInvariance, AnOutputHasTheSameBitsWhateverOutputsAreBesideIt) {
  Random random(3);
  const int64_t inner = 200, outputs = 23;
  const Weight weight = Weight::Bf16(random, {outputs, inner});
  for (const int64_t rows : {1, 3, 9}) {
    const Activations x(random, rows, inner);
    Activations together(rows, outputs), alone(rows, outputs);
    const auto backend = MakeCpu(GetParam());
    backend->Linear({weight.view(), x.view(), together.view()});
    for (int64_t n = 0; n < outputs; ++n) {
      const TensorView one = {weight.view().data + n * inner * 2, DType::kBF16, {1, inner}};
      backend->Linear({one, x.view(), alone.view().Columns(n, 1)});
    }
    ASSERT_TRUE(SameBits(together.values, alone.values)) << rows << " rows";
  }
}

TEST_P(LinearInvariance, AGroupGivesTheBitsOfItsParts) {
  Random random(4);
  const int64_t inner = 320;
  const Weight a = Weight::Bf16(random, {50, inner}), b = Weight::F32(random, {7, inner}),
               c = Weight::Bf16(random, {1, inner});
  for (const int64_t rows : {1, 5}) {
    const Activations x(random, rows, inner);
    Activations out_a(rows, 50), out_b(rows, 7), out_c(rows, 1), one_a(rows, 50), one_b(rows, 7), one_c(rows, 1);
    const auto backend = MakeCpu(GetParam(), 3);
    const LinearGroupArgs::Part parts[] = {
        {a.view(), out_a.view()}, {b.view(), out_b.view()}, {c.view(), out_c.view()}};
    backend->LinearGroup({x.view(), parts});
    backend->Linear({a.view(), x.view(), one_a.view()});
    backend->Linear({b.view(), x.view(), one_b.view()});
    backend->Linear({c.view(), x.view(), one_c.view()});
    EXPECT_TRUE(SameBits(out_a.values, one_a.values));
    EXPECT_TRUE(SameBits(out_b.values, one_b.values));
    EXPECT_TRUE(SameBits(out_c.values, one_c.values));
  }
}

INSTANTIATE_TEST_SUITE_P(All, LinearInvariance, testing::ValuesIn(Isas()), [](const auto& info) { return info.param; });

TEST(ReferenceLinear, ComputesASmallProductByHand) {
  const std::vector<float> w = {1, 2, 3, -1, 0.5f, 0}, x = {2, 4, -1, 1, 1, 1};
  Activations out(2, 2);
  const TensorView weight = {reinterpret_cast<const std::byte*>(w.data()), DType::kF32, {2, 3}};
  MakeReference()->Linear({weight, {x.data(), 2, 3}, out.view()});
  EXPECT_EQ(std::vector<float>(out.values.begin(), out.values.begin() + 4), (std::vector<float>{7, 0, 6, -0.5f}));
}

}  // namespace
}  // namespace deltafin::test
