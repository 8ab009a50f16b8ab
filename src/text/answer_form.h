// AnswerForm: what a whole answer of the model must look like: JSON of a schema, calls that must be made, or both.
//
// Covers the turn from where the prompt ended to its last marker: thoughts are free, the answer and the calls are not.
// AnswerFormWalk goes through it token by token: it masks what may not come next, and near the length limit what could
// not be ended in time, so that what was written is always whole; every byte and every marker is a token of its own,
// therefore a form that lacks n symbols can be ended within n tokens. A form is constant and shared, a walk belongs to
// one answer. Errors: kUnsupported (a schema that cannot be enforced), kInternal (a walk that lost its way).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/chat_message.h"
#include "text/response_parser.h"
#include "text/symbol_grammar.h"
#include "text/symbol_walk.h"
#include "text/token_order.h"

namespace deltafin {

enum class CallsAllowed : uint8_t { kNone, kOptional, kRequired };

struct CallableTool {
  std::string name;
  PythonJson parameters;  // a schema; null: anything
  bool strict = false;    // a schema that cannot be enforced is refused; else such arguments are free
};

struct AnswerFormRequest {
  ResponseChannel start = ResponseChannel::kReasoning;
  ResponseFormat format;
  CallsAllowed calls = CallsAllowed::kNone;
  bool one_call = false;
  std::vector<CallableTool> tools;
};

class AnswerForm {
 public:
  // `order` outlives the form.
  static Result<std::shared_ptr<const AnswerForm>> Create(const TokenOrder& order, const AnswerFormRequest& request);

  // The fewest tokens that certainly suffice.
  int64_t ShortestTokens() const { return grammar_.shortest(grammar_.root()); }
  const SymbolGrammar& grammar() const { return grammar_; }
  const TokenOrder& order() const { return *order_; }
  // The symbols of the four markers' tokens; nothing for other specials.
  std::optional<Symbol> SymbolOf(TokenId special) const;
  TokenId MarkerOf(Symbol symbol) const { return markers_[symbol - kOpenSymbol]; }

 private:
  friend struct FormBuilder;
  AnswerForm(const TokenOrder& order, const ChatMarkers& markers)
      : order_(&order), markers_{markers.open, markers.close, markers.sep, markers.end_of_msg} {}

  const TokenOrder* order_;
  TokenId markers_[4];
  SymbolGrammar grammar_;
};

class AnswerFormWalk {
 public:
  explicit AnswerFormWalk(std::shared_ptr<const AnswerForm> form);

  // Logits [vocab] of tokens that may not come become NaN. `remaining`: tokens that may still come, this one included.
  Status Mask(std::span<float> logits, int64_t remaining);
  // Tokens that were masked are programmer errors and end the walk: later masks fail.
  void Accept(TokenId token);
  bool ended() const { return ended_; }
  // The length limit took away what the model held likeliest.
  bool shortened() const { return shortened_; }

 private:
  // What may come in a state.
  struct Allowed {
    std::vector<bool> tokens;  // by id
    int64_t most_missing = 0;  // after any of them
  };
  template <typename Visit>
  void ForEachAllowed(const Visit& visit);
  const Allowed& AllowedNow();
  SymbolWalk::State After(TokenId token);

  std::shared_ptr<const AnswerForm> form_;
  SymbolWalk walk_;
  SymbolWalk::State state_;
  std::unordered_map<SymbolWalk::State, Allowed> allowed_;
  bool ended_ = false, lost_ = false, shortened_ = false;
};

}  // namespace deltafin
