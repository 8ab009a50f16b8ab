// Conversation: the ids of a chat, turn by turn, as the model read and wrote them.
//
// A turn is kept as the ids that were fed and generated, never rendered again: rendering a parsed answer can give other
// ids, and then everything after it would have to be read anew. A turn that was cut (Ctrl-C, length) is closed with the
// markers it lacks. When the context runs out, whole turns are dropped from the front. Knows tokens and text, not the
// engine. Thread rule: thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/chat_encoder.h"
#include "text/response_parser.h"
#include "text/tokenizer.h"

namespace deltafin {

class Conversation {
 public:
  // `system` may be empty. `options.tools` and formats are not used here.
  static Result<Conversation> Create(const Tokenizer& tokenizer, const std::string& system, const ChatOptions& options);

  // Begins a turn with a user message. All ids up to where the model continues are then prompt().
  Status AddUserMessage(const std::string& text);
  // Takes back the turn that AddUserMessage began.
  void DropLastTurn();
  std::vector<TokenId> Prompt() const;
  ResponseChannel continues_in() const { return continues_in_; }

  // Ends the turn with what the model wrote. `parser` has seen exactly `ids` and is not finished: it says what a turn
  // that was cut lacks.
  Status AddAnswer(const std::vector<TokenId>& ids, const ResponseParser& parser);

  // Drops the oldest turns until the prompt has at most `limit` ids; the last turn is never dropped. Turns dropped.
  int TrimTo(int64_t limit);
  void Clear() { turns_.clear(); }
  // What an earlier Conversation held.
  void Restore(std::vector<TokenId> preamble, std::vector<std::vector<TokenId>> turns) {
    preamble_ = std::move(preamble);
    turns_ = std::move(turns);
  }
  const std::vector<TokenId>& preamble() const { return preamble_; }
  const std::vector<TokenId>& last_turn() const { return turns_.back(); }
  int64_t prompt_tokens() const;
  int turns() const { return static_cast<int>(turns_.size()); }

 private:
  Conversation(const Tokenizer& tokenizer, ChatOptions turn_options)
      : tokenizer_(&tokenizer), turn_options_(std::move(turn_options)) {}

  const Tokenizer* tokenizer_;
  ChatOptions turn_options_;  // for one user message: the effort was stated at the beginning
  ResponseChannel continues_in_ = ResponseChannel::kReasoning;
  std::vector<TokenId> preamble_;
  std::vector<std::vector<TokenId>> turns_;
};

}  // namespace deltafin
