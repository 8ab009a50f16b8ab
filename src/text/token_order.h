// TokenOrder: a vocabulary's tokens in the order of their bytes, so that those with a common beginning lie together.
//
// Whoever walks an automaton over all tokens steps through each common beginning once. Made once for a tokenizer,
// which must outlive it. Constant after creation, any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "text/tokenizer.h"

namespace deltafin {

class TokenOrder {
 public:
  explicit TokenOrder(const Tokenizer& tokenizer);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // Ordinary tokens, sorted by bytes.
  const std::vector<TokenId>& ids() const { return ids_; }
  // How many bytes ids()[i] has in common with ids()[i - 1].
  const std::vector<uint16_t>& shared() const { return shared_; }

 private:
  const Tokenizer* tokenizer_;
  std::vector<TokenId> ids_;
  std::vector<uint16_t> shared_;
};

}  // namespace deltafin
