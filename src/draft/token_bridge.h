// TokenBridge: carries a text between the tokens of the model and those of a drafter with a tokenizer of its own.
//
// Towards the drafter: the text that ids of the model stand for, encoded anew. Back: the ids with which that text goes
// on, given what the drafter says of it. Two tokenizers cut text at different places, so ids are only taken where they
// leave everything before them as it is: what was emitted is never cut anew. Specification of drafting, part C.2; two
// things are done otherwise: the ids are compared over the end of the text only, from where on the model's tokenizer
// would cut it in the same way, so that one unusual cut long ago does not end drafting; and the drafter's words follow
// the model's text itself, not what the drafter's normal form made of it.
// Owns the drafter's tokenizer, shares the model's. Thread rule: constant. Errors: none.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/byte_level_tokenizer.h"
#include "text/tokenizer.h"

namespace deltafin {

class TokenBridge {
 public:
  TokenBridge(std::shared_ptr<const Tokenizer> model, ByteLevelTokenizer drafter)
      : model_(std::move(model)), drafter_(std::move(drafter)) {}

  const ByteLevelTokenizer& drafter() const { return drafter_; }
  // Bytes of an id of the model.
  std::string_view BytesOf(TokenId id) const { return model_->BytesOf(id); }

  // The drafter's ids of a text of the model. Nothing where that is no text: it has special tokens, or ends inside a
  // character.
  std::optional<std::vector<TokenId>> ToDrafter(std::span<const TokenId> history) const;

  // The ids that follow `history` when its text goes on with `more`, of which an incomplete last character is left out.
  // `ended`: nothing more follows. Otherwise the last id is left out too: more text might have made it longer. Empty
  // where `more` would change ids of the history.
  std::vector<TokenId> ToModel(std::span<const TokenId> history, std::string_view more, bool ended) const;

 private:
  std::shared_ptr<const Tokenizer> model_;
  ByteLevelTokenizer drafter_;
};

}  // namespace deltafin
