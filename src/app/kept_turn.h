// kept_turn: the turns of a conversation that is kept (app/kept_session.h): how an answer was asked for, an answer that
// goes on where a process died, and the end of a turn.
//
// The note of a turn says all that the answer's tokens depend on beside the tokens before it, so that an interrupted
// answer ends as it would have ended. Thread rule: main thread. Errors: those of Generate; kCorrupt (a note).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "app/common_options.h"
#include "app/kept_session.h"
#include "engine/generation.h"
#include "text/response_parser.h"
#include "text/tokenizer.h"

namespace deltafin {

struct TurnNote {
  bool chat = false;
  bool until_message_ends = false;                          // chat only: not only until a stop id
  ResponseChannel continues_in = ResponseChannel::kAnswer;  // chat only
  int64_t max_new = 0;
  SamplingParams sampling;
  std::vector<std::string> stops;

  std::string ToText() const;
  static Result<TurnNote> FromText(const std::string& text);
  // The same but for the seed.
  bool AsksTheSame(const TurnNote& other) const;
};

struct TurnRun {
  Engine& engine;
  EngineMonitor& monitor;
  Session& session;
  PrefixCache& prefix_cache;
  const Tokenizer* tokenizer = nullptr;  // null: ids only
  CancelToken cancel;
  std::function<bool(TokenId)> on_token;  // as in GenerationRequest
  Drafting* drafting = nullptr;           // the same
  bool ignore_end = false;                // goes on after the model ended its answer
};

// Answers `prompt`, the whole sequence from its beginning, of which the session and the cache may hold a part.
// `answered`: as in GenerationRequest.
Result<GenerationResult> AnswerPrompt(std::span<const TokenId> prompt, std::span<const TokenId> answered,
                                      const TurnNote& note, const TurnRun& run);

// What can be refused before anything is opened, and opening it.
Status CheckSessionOptions(const CommonOptions& options, const std::string& name);
Result<KeptSession> OpenKeptSession(const CommonOptions& options, const std::string& name, const Engine& engine,
                                    Logger& logger);

// Answers the journal's last turn, which has begun: tokens that it has already are reported first.
Result<GenerationResult> AnswerTurn(KeptSession& kept, const TurnNote& note, const TurnRun& run);
// Ends it. `turn`: all tokens that it is to consist of.
Status EndTurn(KeptSession& kept, const std::vector<TokenId>& turn);
// Nothing of the last turn stays.
Status DropTurn(KeptSession& kept);
// The whole of it, when a process died in the middle of an answer: generates the rest and ends the turn. run.on_token
// is not used. False: cancelled, the turn is still unfinished.
Result<bool> FinishTurn(KeptSession& kept, TurnRun run);
// The tokens of a turn of a chat with `answer` as far as it came, closed as the format wants it.
Result<std::vector<TokenId>> CloseChatTurn(const Tokenizer& tokenizer, const TurnNote& note,
                                           const std::vector<TokenId>& prompt, const std::vector<TokenId>& answer);

}  // namespace deltafin
