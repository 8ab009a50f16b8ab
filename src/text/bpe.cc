#include "text/bpe.h"

#include <cstdint>
#include <queue>
#include <tuple>

namespace deltafin {

namespace {

constexpr uint32_t kEnd = UINT32_MAX;

// A token in the making, identified by the byte it starts at; a linked list, so that a merge costs the same anywhere.
struct Symbol {
  uint32_t length;  // bytes; 0 once merged into its left neighbour
  uint32_t previous;
  uint32_t next;
};

// A possible merge of the symbol at `left` with its successor. Outdated when the two no longer have `length` bytes
// together.
struct Merge {
  int32_t rank;
  uint32_t left;
  uint32_t length;
  bool operator>(const Merge& other) const { return std::tie(rank, left) > std::tie(other.rank, other.left); }
};

class Merger {
 public:
  Merger(const TokenTable& ranks, std::string_view piece) : ranks_(ranks), piece_(piece), symbols_(piece.size()) {
    const auto count = static_cast<uint32_t>(piece.size());
    for (uint32_t i = 0; i < count; ++i) symbols_[i] = {1, i == 0 ? kEnd : i - 1, i + 1 == count ? kEnd : i + 1};
    for (uint32_t i = 0; i + 1 < count; ++i) Consider(i);
  }

  void MergeAll() {
    while (!merges_.empty()) {
      const Merge merge = merges_.top();
      merges_.pop();
      Symbol& left = symbols_[merge.left];
      if (left.length == 0 || left.next == kEnd) continue;
      Symbol& right = symbols_[left.next];
      if (left.length + right.length != merge.length) continue;
      left.length = merge.length;
      left.next = right.next;
      right.length = 0;
      if (left.next != kEnd) symbols_[left.next].previous = merge.left;
      if (left.previous != kEnd) Consider(left.previous);
      if (left.next != kEnd) Consider(merge.left);
    }
  }

  void AppendTo(std::vector<TokenId>* ids) const {
    for (uint32_t i = 0; i != kEnd; i = symbols_[i].next)
      ids->push_back(ranks_.Find(piece_.substr(i, symbols_[i].length)));
  }

 private:
  void Consider(uint32_t left) {
    const uint32_t length = symbols_[left].length + symbols_[symbols_[left].next].length;
    const int32_t rank = ranks_.Find(piece_.substr(left, length));
    if (rank != TokenTable::kNone) merges_.push({rank, left, length});
  }

  const TokenTable& ranks_;
  std::string_view piece_;
  std::vector<Symbol> symbols_;  // by start byte
  std::priority_queue<Merge, std::vector<Merge>, std::greater<>> merges_;
};

}  // namespace

void AppendBytePairs(const TokenTable& ranks, std::string_view piece, std::vector<TokenId>* ids) {
  if (piece.empty()) return;
  const int32_t whole = ranks.Find(piece);
  if (whole != TokenTable::kNone) {
    ids->push_back(whole);
    return;
  }
  Merger merger(ranks, piece);
  merger.MergeAll();
  merger.AppendTo(ids);
}

}  // namespace deltafin
