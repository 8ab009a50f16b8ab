#include "draft/ngram_index.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace deltafin {
namespace {

constexpr int64_t kTables = NgramIndex::kLongest - NgramIndex::kShortest + 1;

uint64_t HashRun(const TokenId* run, int64_t length) {
  uint64_t hash = 0x9e3779b97f4a7c15u;
  for (int64_t i = 0; i < length; ++i) {
    hash = (hash ^ static_cast<uint32_t>(run[i])) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

// At most half of them are ever used.
int64_t NgramIndex::TableSlots(int64_t capacity) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(2 * capacity, 16))));
}

uint64_t NgramIndex::Bytes(int64_t capacity) {
  return static_cast<uint64_t>(kTables * TableSlots(capacity)) * sizeof(int32_t) +
         static_cast<uint64_t>(capacity) * sizeof(TokenId);
}

Result<NgramIndex> NgramIndex::Create(int64_t capacity) {
  NgramIndex index;
  index.capacity_ = capacity;
  index.slots_ = TableSlots(capacity);
  DFIN_TRY(index.tables_, AlignedBuffer::Create(static_cast<uint64_t>(kTables * index.slots_) * sizeof(int32_t),
                                                /*huge_pages=*/false));
  index.text_.reserve(static_cast<size_t>(capacity));
  return index;
}

int32_t* NgramIndex::Table(int64_t length) const {
  return reinterpret_cast<int32_t*>(tables_.data()) + (length - kShortest) * slots_;
}

int32_t* NgramIndex::Find(int64_t length, int64_t end) const {
  const TokenId* run = text_.data() + (end - length);
  int32_t* table = Table(length);
  const auto mask = static_cast<uint64_t>(slots_ - 1);
  for (uint64_t at = HashRun(run, length) & mask;; at = (at + 1) & mask) {
    int32_t* slot = table + at;
    if (*slot == 0 || std::equal(run, run + length, text_.data() + (*slot - length))) return slot;
  }
}

void NgramIndex::Clear() {
  text_.clear();
  std::memset(tables_.data(), 0, tables_.size());
}

bool NgramIndex::Follow(std::span<const TokenId> text) {
  const bool goes_on = text_.size() <= text.size() && std::equal(text_.begin(), text_.end(), text.begin());
  if (!goes_on) Clear();
  if (static_cast<int64_t>(text.size()) > capacity_) {
    if (!text_.empty()) Clear();
    return false;
  }
  while (text_.size() < text.size()) {
    // Runs that end with the token before: now something follows them.
    const auto end = static_cast<int64_t>(text_.size());
    for (int64_t length = kShortest; length <= std::min(kLongest, end); ++length)
      *Find(length, end) = static_cast<int32_t>(end);
    text_.push_back(text[text_.size()]);
  }
  return true;
}

NgramIndex::Hit NgramIndex::Longest() const {
  const auto end = static_cast<int64_t>(text_.size());
  for (int64_t length = std::min(kLongest, end); length >= kShortest; --length) {
    const int32_t seen = *Find(length, end);
    if (seen != 0) return {length, seen};
  }
  return {};
}

}  // namespace deltafin
