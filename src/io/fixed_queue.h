// FixedQueue: a first-in first-out queue of numbers with a capacity fixed at construction, so that it never allocates
// later.
//
// Thread-compatible. Pushing beyond the capacity is a programmer error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace deltafin {

class FixedQueue {
 public:
  explicit FixedQueue(int64_t capacity) : values_(static_cast<size_t>(capacity)) {}

  bool empty() const { return count_ == 0; }
  void Clear() { count_ = 0; }

  void Push(int32_t value) {
    DFIN_CHECK(count_ < values_.size(), "queue is full");
    values_[(first_ + count_++) % values_.size()] = value;
  }
  int32_t Pop() {
    DFIN_CHECK(count_ > 0, "queue is empty");
    const int32_t value = values_[first_];
    first_ = (first_ + 1) % values_.size();
    --count_;
    return value;
  }

 private:
  std::vector<int32_t> values_;
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace deltafin
