// bf12: a BF16 matrix in about 12 bits an element, bit for bit, in an order that vector units decode cheaply.
//
// The low byte of an element (lowest exponent bit, mantissa) is kept; its high byte (sign, upper exponent bits) becomes
// a 4-bit code into a table of 16 bytes that each row has of its own. Elements whose high byte is not in their row's
// table are escapes: their code means nothing, their high byte is in a list. A row that would not shrink is whole: BF16
// as it was. Layout: docs/FORMAT.md, "12-bit matrices". Every bit pattern survives, NaN and -0 included. Pure functions
// and views; Bf12Writer: one thread calls. A view of bytes that CheckBf12() has not accepted must not be read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "tensor/tensor.h"

namespace deltafin {

inline constexpr int64_t kBf12Codes = 16;  // of a row: bytes of its table
// Columns that are stored together: 128 low bytes, then 64 bytes of codes. The last, partial group has its own order.
inline constexpr int64_t kBf12Group = 128;
inline constexpr int64_t kBf12GroupBytes = kBf12Group + kBf12Group / 2;
inline constexpr int64_t kBf12Half = kBf12Group / 2;
// Rows begin at multiples of this from the start of the matrix, which itself wants kBf12Alignment.
inline constexpr int64_t kBf12RowAlignment = 16;
inline constexpr uint64_t kBf12Alignment = 64;
inline constexpr int64_t kBf12MostColumns = (int64_t{1} << 24) - 1;  // an escape has 24 bits for its column

// Where column j of a half group has its low byte and its code: 16-byte lanes hold columns j .. j + 7 and j + 32 .. j +
// 39, so that interleaving the lower (upper) halves of all lanes with their high bytes gives 32 columns in order.
constexpr int64_t Bf12Position(int64_t j) { return j % 32 / 8 * 16 + j / 32 * 8 + j % 8; }

// Bytes of a row that is packed (without table and escapes), and of one that is whole.
constexpr int64_t Bf12PackedRowBytes(int64_t columns) {
  const int64_t tail = columns % kBf12Group;
  return columns / kBf12Group * kBf12GroupBytes +
         CeilDiv(tail + CeilDiv(tail, 2), kBf12RowAlignment) * kBf12RowAlignment;
}
constexpr int64_t Bf12WholeRowBytes(int64_t columns) {
  return CeilDiv(2 * columns, kBf12RowAlignment) * kBf12RowAlignment;
}

struct Bf12Row {
  const uint8_t* data = nullptr;      // Bf12PackedRowBytes(), or columns BF16 values when whole
  const uint8_t* table = nullptr;     // [16] high bytes
  std::span<const uint32_t> escapes;  // column << 8 | high byte, ascending
  bool is_whole = false;

  const uint16_t* whole() const { return reinterpret_cast<const uint16_t*>(data); }
};

constexpr int64_t Bf12EscapeColumn(uint32_t escape) { return escape >> 8; }
constexpr uint8_t Bf12EscapeByte(uint32_t escape) { return static_cast<uint8_t>(escape); }

// The parts of a matrix [rows, columns], in this order:
// - row_at, uint32 [rows + 1]: start of each row in units of 16 bytes from the start of the matrix, then the end;
// - escape_at, uint32 [rows + 1]: where each row's escapes begin in the list, then their number;
// - tables, uint8 [rows, 16], from the next multiple of 16;
// - rows, from the next multiple of 64;
// - escapes, uint32 [escape_at[rows]].
class Bf12View {
 public:
  Bf12View(const std::byte* data, int64_t rows, int64_t columns)
      : data_(reinterpret_cast<const uint8_t*>(data)), rows_(rows), columns_(columns) {}
  explicit Bf12View(const TensorView& tensor) : Bf12View(tensor.data, tensor.shape[0], tensor.shape[1]) {
    DFIN_DCHECK(tensor.dtype == DType::kBf12, "tensor is not BF12");
  }

  // The same matrix with Row(0) where Row(first) was.
  Bf12View From(int64_t first) const {
    Bf12View view = *this;
    view.first_ = first;
    return view;
  }

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  const uint32_t* row_at() const { return reinterpret_cast<const uint32_t*>(data_); }
  const uint32_t* escape_at() const { return row_at() + rows_ + 1; }
  uint64_t escapes() const { return escape_at()[rows_]; }
  Bf12Row Row(int64_t n) const {
    n += first_;
    const uint32_t *at = row_at() + n, *escape = escape_at() + n;
    const auto* list = reinterpret_cast<const uint32_t*>(data_ + row_at()[rows_] * uint64_t{kBf12RowAlignment});
    return {data_ + at[0] * uint64_t{kBf12RowAlignment},
            data_ + TablesAt(rows_) + static_cast<uint64_t>(n) * kBf12Codes,
            std::span(list + escape[0], list + escape[1]),
            (at[1] - at[0]) * int64_t{kBf12RowAlignment} != Bf12PackedRowBytes(columns_)};
  }

  static uint64_t TablesAt(int64_t rows) { return AlignUp(8 * static_cast<uint64_t>(rows + 1), 16); }
  static uint64_t RowsAt(int64_t rows) {
    return AlignUp(TablesAt(rows) + static_cast<uint64_t>(rows) * kBf12Codes, kBf12Alignment);
  }

 private:
  const uint8_t* data_;
  int64_t rows_;
  int64_t columns_;
  int64_t first_ = 0;
};

// Whether a row is smaller packed than whole, so that its size tells which it is: not with a few columns.
bool HasBf12Rows(int64_t columns);
// Whether a matrix of this shape can be smaller than in BF16.
bool Bf12MayShrink(int64_t rows, int64_t columns);
// No matrix of this shape takes more.
uint64_t Bf12MostBytes(int64_t rows, int64_t columns);

// kCorrupt unless `bytes` is a matrix of this shape: then no row or escape lies outside of it. Looks at the parts
// before the rows and at the escapes only.
Status CheckBf12(Bytes bytes, int64_t rows, int64_t columns);

// The BF16 values of a row.
void DecodeBf12Row(const Bf12Row& row, int64_t columns, uint16_t* out);

// Encodes a matrix that comes in pieces of rows. The same input gives the same bytes, whatever the pieces and threads.
class Bf12Writer {
 public:
  // HasBf12Rows(columns). `out`: Bf12MostBytes(), aligned to 64, and zero.
  Bf12Writer(int64_t rows, int64_t columns, std::byte* out);

  // The next `count` rows: [count, columns].
  void Append(const uint16_t* values, int64_t count, ThreadPool& pool);
  // One of the rows so far, decodable; until Finish().
  Bf12Row Row(int64_t n) const;
  // Once all rows are there; returns the matrix' bytes.
  uint64_t Finish();

  int64_t whole_rows() const { return whole_rows_; }
  uint64_t escapes() const { return escapes_.size(); }

 private:
  struct RowPlan {
    uint8_t table[kBf12Codes];
    bool is_whole;
    int64_t escapes;
  };
  RowPlan PlanRow(const uint16_t* values) const;
  void WriteRow(const uint16_t* values, int64_t row);
  void PackRow(const uint16_t* values, const uint8_t* table, uint8_t* to, uint32_t* escapes) const;

  const int64_t rows_;
  const int64_t columns_;
  uint8_t* const out_;
  int64_t next_ = 0;  // row
  int64_t whole_rows_ = 0;
  std::vector<uint32_t> escapes_;
};

}  // namespace deltafin
