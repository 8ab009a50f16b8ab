// Shape: the dimensions of a tensor: up to four, row-major, the last one contiguous.
//
// A value type without memory of its own. Dimensions come from files, so elements() of an unchecked one may overflow:
// parsers check products before they build a Shape.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"

namespace deltafin {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    DFIN_CHECK(dims.size() <= kMaxRank, "at most four dimensions");
    for (const int64_t d : dims) dims_[static_cast<size_t>(rank_++)] = d;
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  void Append(int64_t dim) {
    DFIN_CHECK(rank_ < kMaxRank, "at most four dimensions");
    dims_[static_cast<size_t>(rank_++)] = dim;
  }
  // With another first dimension.
  Shape WithFirst(int64_t dim) const {
    Shape shape = *this;
    shape.dims_[0] = dim;
    return shape;
  }
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[static_cast<size_t>(i)];
    return n;
  }
  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// "[96, 128]".
inline std::string ToString(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace deltafin
