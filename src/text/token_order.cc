#include "text/token_order.h"

#include <algorithm>
#include <numeric>

namespace deltafin {

TokenOrder::TokenOrder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {
  ids_.resize(static_cast<size_t>(tokenizer.base()));
  std::iota(ids_.begin(), ids_.end(), 0);
  std::sort(ids_.begin(), ids_.end(),
            [&](TokenId a, TokenId b) { return tokenizer.BytesOf(a) < tokenizer.BytesOf(b); });
  shared_.resize(ids_.size());
  for (size_t i = 1; i < ids_.size(); ++i) {
    const std::string_view a = tokenizer.BytesOf(ids_[i - 1]), b = tokenizer.BytesOf(ids_[i]);
    const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    shared_[i] = static_cast<uint16_t>(differ.second - b.begin());
  }
}

}  // namespace deltafin
