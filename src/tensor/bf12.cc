#include "tensor/bf12.h"

#include <algorithm>
#include <array>

namespace deltafin {
namespace {

// A row with more escapes than one in so many columns stays whole: it would hardly shrink and decode slowly.
constexpr int64_t kColumnsPerEscape = 32;

constexpr uint8_t HighByte(uint16_t value) { return static_cast<uint8_t>(value >> 8); }

// visit(column, low, code, shift) for every column of a packed row: where its low byte lies, where the byte with its
// code does, and by how many bits the code is shifted in it.
template <typename Visit>
void ForEachPlace(int64_t columns, Visit visit) {
  const int64_t groups = columns / kBf12Group, tail = columns % kBf12Group;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t column = g * kBf12Group, at = g * kBf12GroupBytes;
    for (int64_t j = 0; j < kBf12Half; ++j) {
      const int64_t position = at + Bf12Position(j);
      visit(column + j, position, position + kBf12Group, 0);
      visit(column + kBf12Half + j, position + kBf12Half, position + kBf12Group, 4);
    }
  }
  const int64_t column = groups * kBf12Group, at = groups * kBf12GroupBytes;
  for (int64_t j = 0; j < tail; ++j) visit(column + j, at + j, at + tail + j / 2, j % 2 == 0 ? 0 : 4);
}

}  // namespace

bool HasBf12Rows(int64_t columns) {
  return columns >= 1 && columns <= kBf12MostColumns && Bf12PackedRowBytes(columns) < Bf12WholeRowBytes(columns);
}

bool Bf12MayShrink(int64_t rows, int64_t columns) {
  if (rows < 1 || !HasBf12Rows(columns)) return false;
  const uint64_t packed = Bf12View::RowsAt(rows) + static_cast<uint64_t>(rows * Bf12PackedRowBytes(columns));
  return packed < static_cast<uint64_t>(2 * rows * columns) &&
         Bf12MostBytes(rows, columns) / kBf12RowAlignment <= UINT32_MAX;
}

uint64_t Bf12MostBytes(int64_t rows, int64_t columns) {
  // A packed row is kept only where it is smaller than a whole one with its escapes counted.
  return Bf12View::RowsAt(rows) + static_cast<uint64_t>(rows * Bf12WholeRowBytes(columns));
}

Status CheckBf12(Bytes bytes, int64_t rows, int64_t columns) {
  const auto bad = [](const auto&... parts) { return Fail(ErrorCode::kCorrupt, parts...); };
  if (rows < 1 || rows > INT32_MAX || !HasBf12Rows(columns) || bytes.size() < Bf12View::RowsAt(rows))
    return bad("expected a 12-bit matrix of ", rows, " x ", columns, ", got ", bytes.size(), " bytes");
  const Bf12View view(bytes.data(), rows, columns);
  const uint32_t *row_at = view.row_at(), *escape_at = view.escape_at();
  const uint64_t first = Bf12View::RowsAt(rows) / kBf12RowAlignment;
  const auto packed = static_cast<uint64_t>(Bf12PackedRowBytes(columns) / kBf12RowAlignment);
  const auto whole = static_cast<uint64_t>(Bf12WholeRowBytes(columns) / kBf12RowAlignment);
  if (row_at[0] != first || escape_at[0] != 0)
    return bad("row 0: expected its bytes at ", first * kBf12RowAlignment, ", got ", row_at[0]);
  for (int64_t n = 0; n < rows; ++n) {
    const uint64_t size = uint64_t{row_at[n + 1]} - row_at[n];
    if (row_at[n + 1] < row_at[n] || (size != packed && size != whole))
      return bad("row ", n, ": expected ", packed, " or ", whole, " units of 16 bytes, got ", row_at[n], " to ",
                 row_at[n + 1]);
    const bool has_none = size != packed;
    if (escape_at[n + 1] < escape_at[n] || (has_none && escape_at[n + 1] != escape_at[n]))
      return bad("row ", n, ": expected escapes that follow those before, got ", escape_at[n], " to ",
                 escape_at[n + 1]);
  }
  const uint64_t end = row_at[rows] * uint64_t{kBf12RowAlignment} + view.escapes() * sizeof(uint32_t);
  if (end != bytes.size()) return bad("expected ", end, " bytes, got ", bytes.size());
  for (int64_t n = 0; n < rows; ++n) {
    int64_t after = -1;
    for (const uint32_t escape : view.Row(n).escapes) {
      const int64_t column = Bf12EscapeColumn(escape);
      if (column <= after || column >= columns)
        return bad("row ", n, ": expected an escape between columns ", after, " and ", columns, ", got ", column);
      after = column;
    }
  }
  return {};
}

void DecodeBf12Row(const Bf12Row& row, int64_t columns, uint16_t* out) {
  if (row.is_whole) {
    std::memcpy(out, row.data, static_cast<size_t>(columns) * sizeof(uint16_t));
    return;
  }
  ForEachPlace(columns, [&](int64_t c, int64_t low, int64_t code, int shift) {
    out[c] = static_cast<uint16_t>(row.table[row.data[code] >> shift & 15] << 8 | row.data[low]);
  });
  for (const uint32_t escape : row.escapes) {
    uint16_t& value = out[Bf12EscapeColumn(escape)];
    value = static_cast<uint16_t>(Bf12EscapeByte(escape) << 8 | (value & 0xff));
  }
}

Bf12Writer::Bf12Writer(int64_t rows, int64_t columns, std::byte* out)
    : rows_(rows), columns_(columns), out_(reinterpret_cast<uint8_t*>(out)) {
  DFIN_CHECK(rows >= 1 && HasBf12Rows(columns), "the shape of a 12-bit matrix");
  DFIN_CHECK(Bf12MostBytes(rows, columns) / kBf12RowAlignment <= UINT32_MAX, "a 12-bit matrix has less than 64 GiB");
  auto* row_at = reinterpret_cast<uint32_t*>(out_);
  row_at[0] = static_cast<uint32_t>(Bf12View::RowsAt(rows) / kBf12RowAlignment);
  row_at[rows + 1] = 0;  // the first of escape_at
}

// The table has the row's 16 most frequent high bytes; of equally frequent ones the smaller. In ascending order.
Bf12Writer::RowPlan Bf12Writer::PlanRow(const uint16_t* values) const {
  std::array<uint32_t, 256> counts[2] = {};  // two, because equal bytes follow each other
  for (int64_t c = 0; c + 1 < columns_; c += 2) {
    ++counts[0][HighByte(values[c])];
    ++counts[1][HighByte(values[c + 1])];
  }
  if (columns_ % 2 != 0) ++counts[0][HighByte(values[columns_ - 1])];
  std::array<uint8_t, 256> order;
  for (size_t b = 0; b < 256; ++b) {
    order[b] = static_cast<uint8_t>(b);
    counts[0][b] += counts[1][b];
  }
  std::partial_sort(order.begin(), order.begin() + kBf12Codes, order.end(), [&](uint8_t a, uint8_t b) {
    return counts[0][a] != counts[0][b] ? counts[0][a] > counts[0][b] : a < b;
  });
  RowPlan plan;
  plan.escapes = columns_;
  for (size_t code = 0; code < kBf12Codes; ++code) plan.escapes -= counts[0][order[code]];
  std::sort(order.begin(), order.begin() + kBf12Codes);
  std::copy_n(order.begin(), kBf12Codes, plan.table);
  plan.is_whole = plan.escapes > columns_ / kColumnsPerEscape ||
                  Bf12PackedRowBytes(columns_) + 4 * plan.escapes >= Bf12WholeRowBytes(columns_);
  return plan;
}

void Bf12Writer::Append(const uint16_t* values, int64_t count, ThreadPool& pool) {
  DFIN_CHECK(count >= 0 && next_ + count <= rows_, "more rows than the matrix has");
  auto* row_at = reinterpret_cast<uint32_t*>(out_);
  uint32_t* escape_at = row_at + rows_ + 1;
  uint8_t* tables = out_ + Bf12View::TablesAt(rows_);
  std::vector<RowPlan> plans(static_cast<size_t>(count));
  pool.ParallelFor(count, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) plans[static_cast<size_t>(i)] = PlanRow(values + i * columns_);
  });
  for (int64_t i = 0; i < count; ++i) {
    const RowPlan& plan = plans[static_cast<size_t>(i)];
    const int64_t n = next_ + i;
    const int64_t bytes = plan.is_whole ? Bf12WholeRowBytes(columns_) : Bf12PackedRowBytes(columns_);
    row_at[n + 1] = row_at[n] + static_cast<uint32_t>(bytes / kBf12RowAlignment);
    escape_at[n + 1] = escape_at[n] + (plan.is_whole ? 0 : static_cast<uint32_t>(plan.escapes));
    if (!plan.is_whole) std::copy_n(plan.table, kBf12Codes, tables + n * kBf12Codes);
    whole_rows_ += plan.is_whole ? 1 : 0;
  }
  escapes_.resize(escape_at[next_ + count]);
  pool.ParallelFor(count, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) WriteRow(values + i * columns_, next_ + i);
  });
  next_ += count;
}

void Bf12Writer::WriteRow(const uint16_t* values, int64_t row) {
  const Bf12View view(reinterpret_cast<const std::byte*>(out_), rows_, columns_);
  uint8_t* to = out_ + view.row_at()[row] * uint64_t{kBf12RowAlignment};
  const auto size = static_cast<int64_t>(view.row_at()[row + 1] - view.row_at()[row]) * kBf12RowAlignment;
  if (size != Bf12PackedRowBytes(columns_)) {
    std::memcpy(to, values, static_cast<size_t>(columns_) * sizeof(uint16_t));
    return;
  }
  PackRow(values, out_ + Bf12View::TablesAt(rows_) + row * kBf12Codes, to, escapes_.data() + view.escape_at()[row]);
}

void Bf12Writer::PackRow(const uint16_t* values, const uint8_t* table, uint8_t* to, uint32_t* escapes) const {
  constexpr uint8_t kNone = 255;
  std::array<uint8_t, 256> codes;
  codes.fill(kNone);
  for (size_t code = 0; code < kBf12Codes; ++code) codes[table[code]] = static_cast<uint8_t>(code);
  ForEachPlace(columns_, [&](int64_t c, int64_t low, int64_t at, int shift) {
    const uint8_t high = HighByte(values[c]), code = codes[high];
    to[low] = static_cast<uint8_t>(values[c]);
    if (code != kNone) to[at] = static_cast<uint8_t>(to[at] | code << shift);
  });
  for (int64_t c = 0; c < columns_; ++c) {
    const uint8_t high = HighByte(values[c]);
    if (codes[high] == kNone) *escapes++ = static_cast<uint32_t>(c) << 8 | high;
  }
}

Bf12Row Bf12Writer::Row(int64_t n) const {
  const Bf12View view(reinterpret_cast<const std::byte*>(out_), rows_, columns_);
  const uint32_t *at = view.row_at() + n, *escape = view.escape_at() + n;
  const bool is_whole = (at[1] - at[0]) * int64_t{kBf12RowAlignment} != Bf12PackedRowBytes(columns_);
  return {out_ + at[0] * uint64_t{kBf12RowAlignment}, out_ + Bf12View::TablesAt(rows_) + n * kBf12Codes,
          std::span(escapes_).subspan(escape[0], escape[1] - escape[0]), is_whole};
}

uint64_t Bf12Writer::Finish() {
  DFIN_CHECK(next_ == rows_, "fewer rows than the matrix has");
  const auto* row_at = reinterpret_cast<const uint32_t*>(out_);
  const uint64_t end = row_at[rows_] * uint64_t{kBf12RowAlignment};
  if (!escapes_.empty()) std::memcpy(out_ + end, escapes_.data(), escapes_.size() * sizeof(uint32_t));
  return end + escapes_.size() * sizeof(uint32_t);
}

}  // namespace deltafin
