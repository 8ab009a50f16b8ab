// Linear with 12-bit weights gives the bits that it gives with the same weights in BF16, on every instruction set.
#include <gtest/gtest.h>

#include "backend_fixture.h"
#include "support/bf12_matrix.h"

namespace deltafin::test {
namespace {

// Equal bits, or both not a number: which of several NaN survives a sum is not promised.
bool SameValues(const Activations& a, const Activations& b) {
  for (size_t i = 0; i < a.values.size(); ++i)
    if (std::memcmp(&a.values[i], &b.values[i], sizeof(float)) != 0 &&
        !(std::isnan(a.values[i]) && std::isnan(b.values[i])))
      return false;
  return true;
}

TensorView Bf16View(const std::vector<uint16_t>& values, const Shape& shape) {
  return {reinterpret_cast<const std::byte*>(values.data()), DType::kBF16, shape};
}

// Rows of normal values; every fifth one has 16 high bytes and escapes at the columns where something begins or ends,
// every seventh is any bits and stays whole, and one has heavy tails.
std::vector<uint16_t> MixedRows(int64_t rows, int64_t columns, uint32_t seed) {
  std::vector<uint16_t> values = Bf16Values(ValueKind::kNormal, rows * columns, seed);
  const std::vector<uint16_t> any = Bf16Values(ValueKind::kBits, columns, seed + 1),
                              heavy = Bf16Values(ValueKind::kStudent, columns, seed + 2);
  for (int64_t n = 0; n < rows; ++n) {
    uint16_t* row = values.data() + n * columns;
    if (n % 7 == 3) std::copy(any.begin(), any.end(), row);
    if (n == 5) std::copy(heavy.begin(), heavy.end(), row);
    if (n % 5 != 1) continue;
    const std::vector<uint16_t> sixteen = Bf16Values(ValueKind::kSixteen, columns, seed + 3 + static_cast<uint32_t>(n));
    std::copy(sixteen.begin(), sixteen.end(), row);
    int64_t left = columns / 32;
    for (const int64_t c : {columns - 1, int64_t{0}, int64_t{127}, int64_t{128}, int64_t{63}, columns / 2, int64_t{31}})
      if (c < columns && left-- > 0) row[c] = static_cast<uint16_t>(0x4180 + c % 3);  // 16 and a little more
  }
  return values;
}

struct Bf12Case {
  int64_t outputs, inner;
};

const Bf12Case kCases[] = {{130, 7168}, {24, 12288}, {96, 128}, {37, 1000}, {19, 545}, {13, 96},  {9, 31},
                           {7, 127},    {5, 129},    {1, 256},  {61, 1130}, {16, 384}, {23, 2048}};

class LinearBf12 : public testing::TestWithParam<std::string> {};

TEST_P(LinearBf12, GivesTheBitsOfBf16ForAnyRowsAndThreads) {
  Random random(1);
  for (const Bf12Case& c : kCases) {
    const std::vector<uint16_t> values = MixedRows(c.outputs, c.inner, static_cast<uint32_t>(c.inner));
    const Bf12Matrix matrix(values, c.outputs, c.inner);
    ASSERT_TRUE(CheckBf12(matrix.bytes(), c.outputs, c.inner));
    if (c.outputs > 1 && c.inner >= 96) {
      EXPECT_GE(matrix.escapes(), 2u) << c.outputs << " x " << c.inner;
    }
    for (const int threads : {1, 3}) {
      const auto backend = MakeCpu(GetParam(), threads);
      for (const int64_t rows : {1, 2, 3, 4, 5, 8, 17, 64, 70}) {
        const Activations x(random, rows, c.inner, 1, c.inner + 3);
        Activations packed(rows, c.outputs), whole(rows, c.outputs);
        backend->Linear({matrix.view(), x.view(), packed.view()});
        backend->Linear({Bf16View(values, {c.outputs, c.inner}), x.view(), whole.view()});
        ASSERT_TRUE(SameValues(packed, whole)) << c.outputs << " x " << c.inner << ", rows " << rows;
      }
    }
  }
}

TEST_P(LinearBf12, WhatIsMultipliedIsReallyTheMatrix) {
  // Against a sum of our own: the first unit vectors pick out columns.
  const int64_t outputs = 11, inner = 300;
  const std::vector<uint16_t> values = MixedRows(outputs, inner, 3);
  const Bf12Matrix matrix(values, outputs, inner);
  const auto backend = MakeCpu(GetParam());
  for (int64_t column = 0; column < inner; ++column) {
    Activations x(1, inner), out(1, outputs);
    x.values[static_cast<size_t>(column)] = 1;
    backend->Linear({matrix.view(), x.view(), out.view()});
    for (int64_t n = 0; n < outputs; ++n) {
      bool is_finite = true;  // 0 * infinity is not a number
      for (int64_t c = 0; c < inner; ++c)
        is_finite &= std::isfinite(Bf16ToFloat(values[static_cast<size_t>(n * inner + c)]));
      if (is_finite) {
        ASSERT_EQ(out.values[static_cast<size_t>(n)], Bf16ToFloat(values[static_cast<size_t>(n * inner + column)]))
            << n << ", " << column;
      }
    }
  }
}

TEST_P(LinearBf12, RowsOfAnyBitsGiveTheBitsOfBf16) {
  const int64_t outputs = 12, inner = 640;
  std::vector<uint16_t> values(static_cast<size_t>(outputs * inner));
  Random random(4);
  // 16 high bytes a row that no two rows share, every low byte: infinities, NaN, subnormals, zeros of both signs.
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<uint16_t>(((i / 640 * 16 + static_cast<size_t>(random.Integer(0, 15))) % 256) << 8 |
                                      static_cast<size_t>(random.Integer(0, 255)));
  const Bf12Matrix matrix(values, outputs, inner);
  EXPECT_EQ(matrix.whole_rows(), 0);
  for (const int64_t rows : {1, 2, 9}) {
    const Activations x(random, rows, inner);
    Activations packed(rows, outputs), whole(rows, outputs);
    const auto backend = MakeCpu(GetParam(), 2);
    backend->Linear({matrix.view(), x.view(), packed.view()});
    backend->Linear({Bf16View(values, {outputs, inner}), x.view(), whole.view()});
    EXPECT_TRUE(SameValues(packed, whole)) << rows;
  }
}

TEST_P(LinearBf12, AGroupMayMixTypes) {
  Random random(5);
  const int64_t inner = 320, rows = 3;
  const std::vector<uint16_t> values = MixedRows(50, inner, 6);
  const Bf12Matrix packed(values, 50, inner);
  const Weight other = Weight::F32(random, {7, inner});
  const Activations x(random, rows, inner);
  Activations a(rows, 50), b(rows, 7), c(rows, 50), d(rows, 7);
  const auto backend = MakeCpu(GetParam(), 3);
  const LinearGroupArgs::Part with[] = {{packed.view(), a.view()}, {other.view(), b.view()}};
  const LinearGroupArgs::Part without[] = {{Bf16View(values, {50, inner}), c.view()}, {other.view(), d.view()}};
  backend->LinearGroup({x.view(), with});
  backend->LinearGroup({x.view(), without});
  EXPECT_TRUE(SameValues(a, c));
  EXPECT_TRUE(SameBits(b.values, d.values));
}

TEST_P(LinearBf12, TheRouterChoosesTheSame) {
  Random random(7);
  const int64_t experts = 40, inner = 512, rows = 6, top_k = 8;
  const std::vector<uint16_t> values = Bf16Values(ValueKind::kNormal, experts * inner, 8);
  const Bf12Matrix packed(values, experts, inner);
  const Weight bias = Weight::F32(random, {experts}, 0.1f);
  const Activations x(random, rows, inner);
  const auto backend = MakeCpu(GetParam(), 2);
  std::vector<int32_t> ids[2];
  std::vector<float> weights[2];
  for (const int form : {0, 1}) {
    Activations scores(rows, experts);
    ids[form].resize(rows * top_k);
    weights[form].resize(rows * top_k);
    const TensorView gate = form == 0 ? packed.view() : Bf16View(values, {experts, inner});
    backend->Router({x.view(), gate, bias.view(), top_k, 2.5f, scores.view(), ids[form], weights[form]});
  }
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_EQ(weights[0], weights[1]);
}

INSTANTIATE_TEST_SUITE_P(All, LinearBf12, testing::ValuesIn(Isas()), [](const auto& info) { return info.param; });

TEST(ReferenceLinearBf12, GivesTheBitsOfBf16) {
  Random random(9);
  for (const int64_t inner : {96, 300, 1130}) {
    const std::vector<uint16_t> values = MixedRows(14, inner, 10);
    const Bf12Matrix matrix(values, 14, inner);
    const Activations x(random, 3, inner);
    Activations packed(3, 14), whole(3, 14);
    MakeReference()->Linear({matrix.view(), x.view(), packed.view()});
    MakeReference()->Linear({Bf16View(values, {14, inner}), x.view(), whole.view()});
    EXPECT_TRUE(SameValues(packed, whole)) << inner;
  }
}

}  // namespace
}  // namespace deltafin::test
