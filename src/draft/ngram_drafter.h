// NgramDrafter: proposes what followed the last few tokens when they were last seen in the conversation.
//
// No model and next to no time. Good where a text repeats itself or what it was given: code edits, quotations, tables,
// arguments of tool calls. A copy that reaches the end of the text goes on with the copied tokens, so periodic text is
// drafted to any length. It stops behind a token that ends an answer or structures a chat: the model predicts those
// well, and what follows them is another matter. Thread rule: engine thread only. Errors: kOutOfMemory from Create().
#pragma once

#include <memory>
#include <vector>

#include "draft/drafter.h"
#include "draft/ngram_index.h"

namespace deltafin {

struct NgramOptions {
  int64_t capacity = 0;              // most tokens of a conversation, the one not yet read included
  std::vector<TokenId> stop_tokens;  // a proposal ends with one of these ...
  TokenId first_special = 0;         // ... or with an id from here on; 0: there are none
};

class NgramDrafter final : public Drafter {
 public:
  static uint64_t Bytes(int64_t capacity) { return NgramIndex::Bytes(capacity); }
  static Result<std::unique_ptr<NgramDrafter>> Create(NgramOptions options);

  std::string_view name() const override { return "ngram"; }
  bool costs_nothing() const override { return true; }
  int64_t most() const override { return kMostDrafts; }
  // kind: length of the run that was found, less NgramIndex::kShortest.
  Result<Proposal> Propose(std::span<const TokenId> history, std::span<TokenId> out) override;

 private:
  NgramDrafter(NgramOptions options, NgramIndex index) : options_(std::move(options)), index_(std::move(index)) {}
  bool Ends(TokenId token) const;

  NgramOptions options_;
  NgramIndex index_;
};

}  // namespace deltafin
