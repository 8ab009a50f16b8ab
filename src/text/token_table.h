// token_table.h: a fixed list of byte strings, found by index or by content.
//
// The vocabulary's two directions: index -> bytes and bytes -> index. Built once, then constant.
// Ownership: owns one copy of all bytes. Thread rule: const functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deltafin {

class TokenTable {
 public:
  TokenTable() = default;
  explicit TokenTable(std::span<const std::string> tokens) : starts_{0} {
    size_t slots = 16;
    while (slots < tokens.size() * 2) slots *= 2;
    slots_.assign(slots, kNone);
    for (const std::string& token : tokens) Append(token);
  }

  static constexpr int32_t kNone = -1;

  size_t size() const { return starts_.empty() ? 0 : starts_.size() - 1; }
  size_t longest() const { return longest_; }
  // The first index whose duplicate came later, as (earlier, later); (kNone, kNone) when all tokens differ.
  std::pair<int32_t, int32_t> duplicate() const { return duplicate_; }

  std::string_view operator[](size_t index) const {
    return std::string_view(bytes_).substr(starts_[index], starts_[index + 1] - starts_[index]);
  }

  // Index of `token`, or kNone.
  int32_t Find(std::string_view token) const {
    return token.size() > longest_ || slots_.empty() ? kNone : slots_[SlotOf(token)];
  }

 private:
  // Linear probing; the table is at most half full, so an empty slot always ends the search.
  size_t SlotOf(std::string_view token) const {
    size_t slot = std::hash<std::string_view>()(token) & (slots_.size() - 1);
    while (slots_[slot] != kNone && (*this)[static_cast<size_t>(slots_[slot])] != token) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }

  void Append(std::string_view token) {
    const auto index = static_cast<int32_t>(size());
    const size_t slot = SlotOf(token);
    if (slots_[slot] != kNone) duplicate_ = {slots_[slot], index};
    bytes_.append(token);
    starts_.push_back(bytes_.size());
    if (slots_[slot] == kNone) slots_[slot] = index;
    longest_ = token.size() > longest_ ? token.size() : longest_;
  }

  std::string bytes_;
  std::vector<size_t> starts_;  // of each token in bytes_, then the total
  std::vector<int32_t> slots_;  // index or kNone; a power of two of them
  size_t longest_ = 0;
  std::pair<int32_t, int32_t> duplicate_ = {kNone, kNone};
};

}  // namespace deltafin
