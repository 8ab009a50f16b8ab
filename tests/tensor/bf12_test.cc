// The 12-bit form of BF16 matrices: nothing is lost, the layout is the documented one, damage is noticed.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "support/bf12_matrix.h"

namespace deltafin::test {
namespace {

std::vector<std::byte> Copy(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

TEST(Bf12, EveryBitPatternComesBack) {
  // All 65,536, in an order in which a row has few high bytes, and in one in which it has all of them.
  for (const int64_t columns : {128, 1024, 4096}) {
    std::vector<uint16_t> sorted(65536), mixed(65536);
    for (uint32_t i = 0; i < 65536; ++i) {
      sorted[i] = static_cast<uint16_t>(i);
      mixed[i] = static_cast<uint16_t>(i * 40503u);
    }
    const Bf12Matrix few(sorted, 65536 / columns, columns), all(mixed, 65536 / columns, columns);
    EXPECT_EQ(few.Decoded(), sorted) << columns;
    EXPECT_EQ(few.whole_rows(), 0) << columns;
    EXPECT_EQ(all.Decoded(), mixed) << columns;
    EXPECT_EQ(all.whole_rows(), 65536 / columns) << columns;
  }
}

TEST(Bf12, ValuesOfAnyKindAndWidthComeBack) {
  for (const ValueKind kind : {ValueKind::kNormal, ValueKind::kStudent, ValueKind::kBits})
    for (const int64_t columns : {31, 33, 64, 96, 127, 128, 129, 255, 256, 257, 545, 1000, 1130, 7168}) {
      const std::vector<uint16_t> values = Bf16Values(kind, 7 * columns, static_cast<uint32_t>(columns));
      const Bf12Matrix matrix(values, 7, columns);
      EXPECT_EQ(matrix.Decoded(), values) << columns;
      EXPECT_TRUE(CheckBf12(matrix.bytes(), 7, columns)) << columns;
    }
}

TEST(Bf12, EscapesAreTheValuesWhoseHighByteIsRare) {
  // 16 high bytes eight times and more, and three others once, at known columns.
  const int64_t columns = 300;
  std::vector<uint16_t> values(columns);
  for (int64_t c = 0; c < columns; ++c)
    values[static_cast<size_t>(c)] = static_cast<uint16_t>((0x30 + c % 16) << 8 | c % 256);
  values[0] = 0x7fc1;    // NaN
  values[131] = 0x8000;  // -0
  values[299] = 0xff80;  // -infinity
  const Bf12Matrix matrix(values, 1, columns);
  const Bf12Row row = Bf12View(matrix.view()).Row(0);
  ASSERT_FALSE(row.is_whole);
  EXPECT_EQ(std::vector<uint32_t>(row.escapes.begin(), row.escapes.end()),
            (std::vector<uint32_t>{0u << 8 | 0x7f, 131u << 8 | 0x80, 299u << 8 | 0xff}));
  EXPECT_EQ(matrix.Decoded(), values);
}

TEST(Bf12, TheBytesAreWhereTheFormatSays) {
  // Columns 0..127 of a group and a tail of 3; high bytes 0x40 + (c % 16), low bytes c.
  const int64_t columns = 131;
  std::vector<uint16_t> values(2 * columns);
  for (int64_t c = 0; c < 2 * columns; ++c) {
    const int64_t k = c % columns;
    values[static_cast<size_t>(c)] = static_cast<uint16_t>((0x40 + k % 16) << 8 | k);
  }
  const Bf12Matrix matrix(values, 2, columns);
  const auto* bytes = reinterpret_cast<const uint8_t*>(matrix.bytes().data());
  const auto number = [&](size_t at) { return LoadUnaligned<uint32_t>(bytes + at); };
  // row_at [3], escape_at [3], 8 zeros, tables at 32, rows at 64, each of 192 + 3 + 2 bytes and 11 zeros.
  const uint32_t expected[] = {4, 17, 30, 0, 0, 0, 0, 0};
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(number(4 * i), expected[i]) << i;
  EXPECT_EQ(matrix.bytes().size(), 64u + 2 * 208);
  for (int code = 0; code < 16; ++code) EXPECT_EQ(bytes[32 + code], 0x40 + code);
  const uint8_t* row = bytes + 64 + 208;
  // Column 37 is in lane 0's upper half; 64 + 9 in lane 1's lower half of the second half group.
  EXPECT_EQ(row[8 + 5], 37);
  EXPECT_EQ(row[128 + 8 + 5] & 15, 37 % 16);
  EXPECT_EQ(row[64 + 16 + 1], 73);
  EXPECT_EQ(row[128 + 16 + 1] >> 4, 73 % 16);
  const uint8_t tail[] = {128, 129, 130, 0 | 1 << 4, 2};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(row[192 + i], tail[i]) << i;
  for (size_t i = 197; i < 208; ++i) EXPECT_EQ(row[i], 0) << i;
}

TEST(Bf12, PiecesAndThreadsDoNotChangeTheBytes) {
  const int64_t rows = 37, columns = 330;
  std::vector<uint16_t> values = Bf16Values(ValueKind::kStudent, rows * columns, 5);
  const std::vector<uint16_t> any = Bf16Values(ValueKind::kBits, columns, 6);
  const std::vector<uint16_t> sixteen = Bf16Values(ValueKind::kSixteen, columns, 7);
  std::copy(any.begin(), any.end(), values.begin() + 9 * columns);
  for (const int64_t row : {int64_t{3}, int64_t{4}, rows - 1}) {
    std::copy(sixteen.begin(), sixteen.end(), values.begin() + row * columns);
    for (const int64_t c : {row, 100 + row}) values[static_cast<size_t>(row * columns + c)] = 0x4180;
  }
  const Bf12Matrix one(values, rows, columns);
  EXPECT_EQ(one.whole_rows(), 1);
  EXPECT_EQ(one.escapes(), 6u);
  for (const int64_t piece : {1, 5, 36})
    EXPECT_EQ(Copy(Bf12Matrix(values, rows, columns, 3, piece).bytes()), Copy(one.bytes())) << piece;
}

// What trained rows are like decides what the form saves; bounds around figures that are in docs/FORMAT.md.
TEST(Bf12, GaussianAndHeavyTailedRowsHaveFewEscapes) {
  const int64_t rows = 512, columns = 7168;
  const auto rate = [&](ValueKind kind) {
    const Bf12Matrix matrix(Bf16Values(kind, rows * columns, 7), rows, columns);
    EXPECT_EQ(matrix.whole_rows(), 0);
    const double bytes = static_cast<double>(matrix.bytes().size()) / static_cast<double>(2 * rows * columns);
    EXPECT_GT(bytes, 0.75);
    EXPECT_LT(bytes, 0.755);
    return static_cast<double>(matrix.escapes()) / static_cast<double>(rows * columns);
  };
  const double gaussian = rate(ValueKind::kNormal), heavy = rate(ValueKind::kStudent);
  RecordProperty("escapes_of_million_gaussian", std::to_string(gaussian * 1e6));
  RecordProperty("escapes_of_million_student", std::to_string(heavy * 1e6));
  // A normal row's largest values are near 4 sigma; what is more than 14 to 16 powers of two below is an escape.
  EXPECT_LT(gaussian, 3e-4);
  EXPECT_LT(heavy, 1e-3);
}

TEST(Bf12, SmallMatricesAreNotWorthIt) {
  EXPECT_FALSE(HasBf12Rows(8));
  EXPECT_FALSE(HasBf12Rows(16));
  EXPECT_TRUE(HasBf12Rows(31));
  EXPECT_FALSE(Bf12MayShrink(100, 16));
  EXPECT_FALSE(Bf12MayShrink(1, 64));
  EXPECT_TRUE(Bf12MayShrink(1000, 72));
  EXPECT_TRUE(Bf12MayShrink(12288, 128));
  EXPECT_FALSE(Bf12MayShrink(4, int64_t{1} << 24));
  EXPECT_FALSE(Bf12MayShrink(0, 1024));
}

class DamagedBf12 : public testing::Test {
 protected:
  static constexpr int64_t kRows = 5, kColumns = 200;

  DamagedBf12() {
    std::vector<uint16_t> values = Bf16Values(ValueKind::kSixteen, kRows * kColumns, 8);
    for (const int64_t c : {3, 150}) values[static_cast<size_t>(2 * kColumns + c)] = 0x7f80;
    const std::vector<uint16_t> any = Bf16Values(ValueKind::kBits, kColumns, 9);
    std::copy(any.begin(), any.end(), values.begin() + 4 * kColumns);
    matrix_ = std::make_unique<Bf12Matrix>(values, kRows, kColumns);
  }
  // Whether the matrix is refused once the number at `index` (of 4 bytes each) is `value`.
  bool Refused(size_t index, uint32_t value) {
    MutBytes bytes = matrix_->edit();
    const auto before = LoadUnaligned<uint32_t>(bytes.data() + 4 * index);
    std::memcpy(bytes.data() + 4 * index, &value, 4);
    const Status status = CheckBf12(bytes, kRows, kColumns);
    std::memcpy(bytes.data() + 4 * index, &before, 4);
    EXPECT_TRUE(status || status.error().code() == ErrorCode::kCorrupt);
    return !status;
  }
  uint32_t At(size_t index) const { return LoadUnaligned<uint32_t>(matrix_->bytes().data() + 4 * index); }

  std::unique_ptr<Bf12Matrix> matrix_;
};

TEST_F(DamagedBf12, IsAcceptedWhole) {
  EXPECT_TRUE(CheckBf12(matrix_->bytes(), kRows, kColumns));
  EXPECT_EQ(matrix_->whole_rows(), 1);
  EXPECT_EQ(matrix_->escapes(), 2u);
}

TEST_F(DamagedBf12, AnyOtherRowStartIsRefused) {
  for (size_t n = 0; n <= kRows; ++n)
    for (const uint32_t value : {0u, At(n) - 1, At(n) + 1, At(n) + 1000, UINT32_MAX})
      EXPECT_TRUE(Refused(n, value)) << n;
}

TEST_F(DamagedBf12, EscapesOutsideOfTheListOrTheRowAreRefused) {
  const size_t escape_at = kRows + 1, list = At(kRows) * size_t{4};
  for (size_t n = 0; n <= kRows; ++n) EXPECT_TRUE(Refused(escape_at + n, UINT32_MAX)) << n;
  EXPECT_TRUE(Refused(escape_at, 1));
  EXPECT_TRUE(Refused(escape_at + kRows, At(escape_at + kRows) + 1));
  EXPECT_TRUE(Refused(list, kColumns << 8));
  EXPECT_TRUE(Refused(list, UINT32_MAX));
  EXPECT_FALSE(Refused(list, At(list)));
}

TEST_F(DamagedBf12, OtherSizesAndShapesAreRefused) {
  const Bytes bytes = matrix_->bytes();
  for (size_t size : {size_t{0}, size_t{4}, size_t{100}, bytes.size() - 1, bytes.size() - 16})
    EXPECT_FALSE(CheckBf12(bytes.first(size), kRows, kColumns)) << size;
  EXPECT_FALSE(CheckBf12(bytes, kRows + 1, kColumns));
  EXPECT_FALSE(CheckBf12(bytes, kRows - 1, kColumns));
  EXPECT_FALSE(CheckBf12(bytes, kRows, kColumns + 128));
  EXPECT_FALSE(CheckBf12(bytes, 0, kColumns));
  EXPECT_FALSE(CheckBf12(bytes, kRows, 0));
  EXPECT_FALSE(CheckBf12(bytes, int64_t{1} << 40, kColumns));
}

}  // namespace
}  // namespace deltafin::test
