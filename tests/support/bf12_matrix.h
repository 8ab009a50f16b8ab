// bf12_matrix.h: BF16 values of several kinds, and a matrix of them in its 12-bit form, owning its memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/float_types.h"
#include "tensor/bf12.h"

namespace deltafin::test {

enum class ValueKind {
  kNormal,   // as trained weights are
  kStudent,  // heavy tails: Student's t with 3 degrees of freedom
  kBits,     // any of the 65,536 patterns, each as likely as the others
  kSixteen,  // 16 high bytes, each as likely as the others: another one is an escape
};

inline std::vector<uint16_t> Bf16Values(ValueKind kind, int64_t count, uint32_t seed, float scale = 0.02f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::student_t_distribution<float> student(3);
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (uint16_t& value : values) {
    const auto bits = static_cast<uint32_t>(random());
    if (kind == ValueKind::kBits)
      value = static_cast<uint16_t>(bits);
    else if (kind == ValueKind::kSixteen)
      value = static_cast<uint16_t>((bits & 0x87ffu) | 0x3800u);  // 2^-15 to 2
    else
      value = FloatToBf16(kind == ValueKind::kNormal ? normal(random) : scale * student(random));
  }
  return values;
}

// A matrix [rows, columns] with HasBf12Rows(columns).
class Bf12Matrix {
 public:
  Bf12Matrix(const std::vector<uint16_t>& values, int64_t rows, int64_t columns, int threads = 1,
             int64_t piece = 1 << 20)
      : buffer_(AlignedBuffer::Create(Bf12MostBytes(rows, columns), false).value()), shape_({rows, columns}) {
    ThreadPool pool(threads);
    Bf12Writer writer(rows, columns, buffer_.data());
    for (int64_t n = 0; n < rows; n += piece)
      writer.Append(values.data() + n * columns, std::min(piece, rows - n), pool);
    bytes_ = writer.Finish();
    whole_rows_ = writer.whole_rows();
    escapes_ = writer.escapes();
  }

  TensorView view() const { return {buffer_.data(), DType::kBf12, shape_}; }
  Bytes bytes() const { return {buffer_.data(), static_cast<size_t>(bytes_)}; }
  MutBytes edit() { return {buffer_.data(), static_cast<size_t>(bytes_)}; }
  int64_t whole_rows() const { return whole_rows_; }
  uint64_t escapes() const { return escapes_; }
  std::vector<uint16_t> Decoded() const {
    std::vector<uint16_t> out(static_cast<size_t>(shape_.elements()));
    const Bf12View matrix(view());
    for (int64_t n = 0; n < shape_[0]; ++n) DecodeBf12Row(matrix.Row(n), shape_[1], out.data() + n * shape_[1]);
    return out;
  }

 private:
  AlignedBuffer buffer_;
  Shape shape_;
  uint64_t bytes_ = 0;
  int64_t whole_rows_ = 0;
  uint64_t escapes_ = 0;
};

}  // namespace deltafin::test
