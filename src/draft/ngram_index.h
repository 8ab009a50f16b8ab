// NgramIndex: where the last few tokens of a text were seen before in it.
//
// For every length from kShortest to kLongest a hash table from a run of tokens to where it ended last; hits are
// compared with the tokens, so a hash never deceives. A run is entered when a token follows it. Adding a token and
// looking one up touch each table once. Memory is taken in Create() for `capacity` tokens; longer texts are refused by
// Follow(). Thread-compatible. Errors: kOutOfMemory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/ids.h"
#include "base/result.h"

namespace deltafin {

class NgramIndex {
 public:
  static constexpr int64_t kShortest = 2, kLongest = 6;

  struct Hit {
    int64_t length = 0;  // of the run; 0: it was not seen before
    int64_t next = 0;    // position of the token that followed it
  };

  static uint64_t Bytes(int64_t capacity);
  static Result<NgramIndex> Create(int64_t capacity);

  // Becomes the index of `text`: what it has in common with the text before costs nothing but a comparison. False: it
  // is longer than the capacity, and the index is empty.
  bool Follow(std::span<const TokenId> text);
  // The longest run of at most kLongest tokens that ends the text and was seen before.
  Hit Longest() const;

 private:
  static int64_t TableSlots(int64_t capacity);
  int32_t* Table(int64_t length) const;
  // Slot of the run of `length` tokens that ends before position `end`: where it is, or where it belongs.
  int32_t* Find(int64_t length, int64_t end) const;
  void Clear();

  int64_t capacity_ = 0, slots_ = 0;
  AlignedBuffer tables_;  // [kLongest - kShortest + 1, slots] i32: end of a run, 0 = free
  std::vector<TokenId> text_;
};

}  // namespace deltafin
