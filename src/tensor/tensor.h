// Views of tensors. None of them owns memory; whoever hands one out says how long it lives. Thread rule: value types.
//
// TensorView   a weight as it lies in a file or buffer: dtype, shape, contiguous.
// Rows         mutable float32 activations [rows, width], rows `stride` floats apart.
// ConstRows    the same, read-only.
// PagedRows    read-only rows, float32 or BF16, that lie in pages of equally many rows.
// PackedRows   mutable rows, float32 or BF16, without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace deltafin {

struct TensorView {
  const std::byte* data = nullptr;  // aligned to the element size; kBf12: to kBf12Alignment
  DType dtype = DType::kF32;
  Shape shape;

  bool empty() const { return data == nullptr; }
  int64_t bytes() const { return shape.elements() * ByteSize(dtype); }  // not of kBf12
  // Entries [first, first + count) of the first dimension; not of kBf12, whose rows differ in size.
  TensorView SliceFirst(int64_t first, int64_t count) const {
    DFIN_DCHECK(dtype != DType::kBf12 && first >= 0 && first + count <= shape[0], "slice outside the tensor");
    return {data + first * (bytes() / shape[0]), dtype, shape.WithFirst(count)};
  }
  // A vector of its elements [first, first + count).
  TensorView Elements(int64_t first, int64_t count) const {
    DFIN_DCHECK(dtype != DType::kBf12 && first >= 0 && first + count <= shape.elements(), "outside the tensor");
    return {data + first * ByteSize(dtype), dtype, {count}};
  }
  const float* f32() const {
    DFIN_DCHECK(dtype == DType::kF32, "tensor is not F32");
    return reinterpret_cast<const float*>(data);
  }
  const uint16_t* bf16() const {
    DFIN_DCHECK(dtype == DType::kBF16, "tensor is not BF16");
    return reinterpret_cast<const uint16_t*>(data);
  }
};

struct Rows {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t stride = 0;  // floats from one row to the next, >= width

  Rows() = default;
  Rows(float* data, int64_t rows, int64_t width) : Rows(data, rows, width, width) {}
  Rows(float* data, int64_t rows, int64_t width, int64_t stride)
      : data(data), rows(rows), width(width), stride(stride) {}

  float* row(int64_t r) const { return data + r * stride; }
  // Rows [first, first + count).
  Rows Slice(int64_t first, int64_t count) const { return {data + first * stride, count, width, stride}; }
  // Columns [first, first + count) of every row.
  Rows Columns(int64_t first, int64_t count) const { return {data + first, rows, count, stride}; }
};

struct ConstRows {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t stride = 0;

  ConstRows() = default;
  ConstRows(const Rows& other)  // NOLINT: implicit, as span<T> to span<const T>
      : data(other.data), rows(other.rows), width(other.width), stride(other.stride) {}
  ConstRows(const float* data, int64_t rows, int64_t width) : ConstRows(data, rows, width, width) {}
  ConstRows(const float* data, int64_t rows, int64_t width, int64_t stride)
      : data(data), rows(rows), width(width), stride(stride) {}

  const float* row(int64_t r) const { return data + r * stride; }
  ConstRows Slice(int64_t first, int64_t count) const { return {data + first * stride, count, width, stride}; }
  ConstRows Columns(int64_t first, int64_t count) const { return {data + first, rows, count, stride}; }
};

struct PagedRows {
  const float* const* pages = nullptr;  // as many as the rows need; null: bf16_pages
  int64_t page_rows = 0;
  int64_t offset = 0;  // values from the start of a page to its first row
  int64_t rows = 0;
  int64_t width = 0;
  int64_t stride = 0;
  const uint16_t* const* bf16_pages = nullptr;  // the same in BF16

  bool is_bf16() const { return pages == nullptr; }
  // The rows behind it up to the end of its page follow, `stride` values apart.
  const float* row(int64_t r) const { return pages[r / page_rows] + At(r); }
  const uint16_t* bf16_row(int64_t r) const { return bf16_pages[r / page_rows] + At(r); }
  int64_t At(int64_t r) const { return offset + (r % page_rows) * stride; }
};

// Consecutive rows [rows, width], packed, in one of two types.
struct PackedRows {
  float* f32 = nullptr;
  uint16_t* bf16 = nullptr;  // where f32 is null
  int64_t rows = 0;
  int64_t width = 0;

  Rows view() const {
    DFIN_DCHECK(f32 != nullptr, "rows are not F32");
    return {f32, rows, width};
  }
  MutBytes bytes() const {
    const auto values = static_cast<size_t>(rows * width);
    return f32 != nullptr ? std::as_writable_bytes(std::span(f32, values))
                          : std::as_writable_bytes(std::span(bf16, values));
  }
};

}  // namespace deltafin
