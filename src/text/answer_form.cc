#include "text/answer_form.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/json_grammar.h"

namespace deltafin {
namespace {

// Masks that are kept; each has one bit a token.
constexpr size_t kMostMasks = 256;

std::string EscapedAttribute(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out.push_back(c);
  }
  return out;
}

}  // namespace

// Puts the turn together, element by element.
struct FormBuilder {
  AnswerForm& form;
  SymbolGrammar& g = form.grammar_;
  JsonGrammar json{form.grammar_};

  NodeId Open(NodeId header) { return g.Sequence({g.Marker(kOpenSymbol), header, g.Marker(kSepSymbol)}); }
  NodeId Open(std::string_view tag) { return Open(g.Literal(tag)); }
  NodeId Close(std::string_view tag) {
    return g.Sequence({g.Marker(kCloseSymbol), g.Literal(tag), g.Marker(kSepSymbol)});
  }
  NodeId FreeText() {
    SymbolSet bytes;
    for (size_t c = 0; c < 256; ++c) bytes.set(c);
    return g.Repeat(g.Set(bytes), 0);
  }

  NodeId Argument(const std::string& key, const JsonGrammar::Argument& value) {
    const std::string header = Cat("argument key=\"", EscapedAttribute(key), "\" type=\"", value.type, "\"");
    return g.Sequence({Open(header), value.value, Close("argument")});
  }

  // Arguments that nothing is known of.
  Result<NodeId> FreeArguments() {
    DFIN_TRY(const NodeId key, PatternNode(g, "^[A-Za-z_][A-Za-z0-9_-]{0,63}$", StringForm::kPlain));
    const PythonJson nothing = PythonJson::Object();
    DFIN_TRY(const std::vector<JsonGrammar::Argument> values, json.Arguments(nothing, nothing));
    std::vector<NodeId> choices;
    for (const JsonGrammar::Argument& value : values) {
      const NodeId header =
          g.Sequence({g.Literal("argument key=\""), key, g.Literal(Cat("\" type=\"", value.type, "\""))});
      choices.push_back(g.Sequence({Open(header), value.value, Close("argument")}));
    }
    return g.Repeat(g.Choice(std::move(choices)), 0);
  }

  Result<NodeId> DeclaredArguments(const CallableTool& tool) {
    const PythonJson* properties = tool.parameters.Find("properties");
    const PythonJson* required = tool.parameters.Find("required");
    if (properties == nullptr || !properties->is_object() || properties->members.empty()) {
      const PythonJson* others = tool.parameters.Find("additionalProperties");
      const bool closed = (others != nullptr && others->is_bool() && !others->boolean) || properties != nullptr;
      return closed ? Result<NodeId>(g.Sequence({})) : FreeArguments();
    }
    std::vector<NodeId> parts;
    for (const PythonJsonMember& member : properties->members) {
      Result<std::vector<JsonGrammar::Argument>> values = json.Arguments(member.value, tool.parameters);
      if (!values && tool.strict) return FailWith(std::move(values), Cat("tool ", tool.name, ": ", member.key));
      if (!values) values = json.Arguments(PythonJson::Object(), tool.parameters);
      std::vector<NodeId> choices;
      for (const JsonGrammar::Argument& value : *values) choices.push_back(Argument(member.key, value));
      const NodeId one = g.Choice(std::move(choices));
      const bool must =
          required != nullptr && std::any_of(required->items.begin(), required->items.end(),
                                             [&](const PythonJson& name) { return name.text == member.key; });
      parts.push_back(must ? one : g.Optional(one));
    }
    return g.Sequence(std::move(parts));
  }

  Result<NodeId> Calls(const AnswerFormRequest& request) {
    SymbolSet digits;
    for (char c = '1'; c <= '9'; ++c) digits.set(static_cast<size_t>(c));
    const NodeId index = g.Set(digits);
    std::vector<NodeId> choices;
    for (const CallableTool& tool : request.tools) {
      DFIN_TRY(const NodeId arguments, DeclaredArguments(tool));
      const NodeId header = g.Sequence(
          {g.Literal(Cat("call tool=\"", EscapedAttribute(tool.name), "\" index=\"")), index, g.Literal("\"")});
      choices.push_back(g.Sequence({Open(header), arguments, Close("call")}));
    }
    if (choices.empty()) return Fail(ErrorCode::kUnsupported, "tools: a call is required, and none is declared");
    const NodeId call = g.Choice(std::move(choices));
    return g.Sequence({Open("tools"), g.Repeat(call, 1, request.one_call ? 1 : 9), Close("tools")});
  }

  Result<NodeId> Content(const AnswerFormRequest& request) {
    if (request.format.kind == ResponseFormat::Kind::kJsonObject) return json.AnyObject();
    if (request.format.kind == ResponseFormat::Kind::kJsonSchema) return json.Value(request.format.schema);
    return FreeText();
  }

  Result<NodeId> Turn(const AnswerFormRequest& request) {
    DFIN_TRY(const NodeId content, Content(request));
    std::vector<NodeId> turn;
    if (request.start == ResponseChannel::kReasoning) turn = {FreeText(), Close("think"), Open("response")};
    if (request.calls == CallsAllowed::kNone) {
      turn.push_back(g.Sequence({content, Close("response")}));
    } else {
      DFIN_TRY(const NodeId calls, Calls(request));
      const bool free = request.format.kind == ResponseFormat::Kind::kText;
      // JSON that was asked for, or nothing, before the calls.
      const NodeId before = free ? content : g.Optional(content);
      const NodeId with_calls = g.Sequence({before, Close("response"), calls});
      turn.push_back(request.calls == CallsAllowed::kRequired
                         ? with_calls
                         : g.Choice({g.Sequence({content, Close("response")}), with_calls}));
    }
    turn.push_back(Close("message"));
    turn.push_back(g.Marker(kEndSymbol));
    return g.Sequence(std::move(turn));
  }
};

Result<std::shared_ptr<const AnswerForm>> AnswerForm::Create(const TokenOrder& order,
                                                             const AnswerFormRequest& request) {
  DFIN_TRY(const ChatMarkers markers, order.tokenizer().chat_markers());
  std::shared_ptr<AnswerForm> form(new AnswerForm(order, markers));
  DFIN_TRY(const NodeId turn, FormBuilder{*form}.Turn(request));
  DFIN_TRY_VOID(form->grammar_.Finish(turn));
  return std::shared_ptr<const AnswerForm>(std::move(form));
}

std::optional<Symbol> AnswerForm::SymbolOf(TokenId special) const {
  for (size_t i = 0; i < 4; ++i)
    if (markers_[i] == special) return static_cast<Symbol>(kOpenSymbol + i);
  return std::nullopt;
}

AnswerFormWalk::AnswerFormWalk(std::shared_ptr<const AnswerForm> form)
    : form_(std::move(form)), walk_(form_->grammar()), state_(walk_.start()) {}

// visit(token, state after it) for every token that may come now.
template <typename Visit>
void AnswerFormWalk::ForEachAllowed(const Visit& visit) {
  const TokenOrder& order = form_->order();
  const Tokenizer& tokenizer = order.tokenizer();
  std::vector<SymbolWalk::State> path = {state_};  // after each byte of the token
  size_t dead_from = std::numeric_limits<size_t>::max();
  for (size_t i = 0; i < order.ids().size(); ++i) {
    const size_t shared = order.shared()[i];
    if (shared > dead_from) continue;  // begins with bytes that may not come
    dead_from = std::numeric_limits<size_t>::max();
    path.resize(std::min(path.size(), shared + 1));
    const std::string_view bytes = tokenizer.BytesOf(order.ids()[i]);
    for (size_t at = path.size() - 1; at < bytes.size(); ++at) {
      const SymbolWalk::State next = walk_.Step(path.back(), static_cast<unsigned char>(bytes[at]));
      if (next == SymbolWalk::kDead) {
        dead_from = at;
        break;
      }
      path.push_back(next);
    }
    if (dead_from == std::numeric_limits<size_t>::max()) visit(order.ids()[i], path.back());
  }
  for (Symbol symbol = kOpenSymbol; symbol <= kEndSymbol; ++symbol) {
    const SymbolWalk::State next = walk_.Step(state_, symbol);
    if (next != SymbolWalk::kDead) visit(form_->MarkerOf(symbol), next);
  }
}

const AnswerFormWalk::Allowed& AnswerFormWalk::AllowedNow() {
  const auto found = allowed_.find(state_);
  if (found != allowed_.end()) return found->second;
  if (allowed_.size() >= kMostMasks) allowed_.clear();
  Allowed& allowed = allowed_[state_];
  allowed.tokens.assign(static_cast<size_t>(form_->order().tokenizer().token_count()), false);
  ForEachAllowed([&](TokenId token, SymbolWalk::State after) {
    allowed.tokens[static_cast<size_t>(token)] = true;
    allowed.most_missing = std::max(allowed.most_missing, walk_.Missing(after));
  });
  return allowed;
}

Status AnswerFormWalk::Mask(std::span<float> logits, int64_t remaining) {
  if (lost_ || ended_) return Fail(ErrorCode::kInternal, "the form of an answer: went on after its end");
  const Allowed& allowed = AllowedNow();
  const auto keep = [&](const std::vector<bool>& tokens) {
    for (size_t id = 0; id < logits.size(); ++id)
      if (id >= tokens.size() || !tokens[id]) logits[id] = NAN;
  };
  // When the end is out of reach there is nothing to keep room for.
  if (allowed.most_missing <= remaining - 1 || walk_.Missing(state_) > remaining) {
    keep(allowed.tokens);
    return {};
  }
  std::vector<bool> in_time(allowed.tokens.size(), false);
  ForEachAllowed([&](TokenId token, SymbolWalk::State after) {
    if (walk_.Missing(after) <= remaining - 1) in_time[static_cast<size_t>(token)] = true;
  });
  size_t likeliest = 0;
  float most = -std::numeric_limits<float>::infinity();
  for (size_t id = 0; id < allowed.tokens.size() && id < logits.size(); ++id) {
    if (!allowed.tokens[id] || !(logits[id] > most)) continue;
    most = logits[id];
    likeliest = id;
  }
  if (!in_time[likeliest]) shortened_ = true;
  keep(in_time);
  return {};
}

SymbolWalk::State AnswerFormWalk::After(TokenId token) {
  const Tokenizer& tokenizer = form_->order().tokenizer();
  if (tokenizer.IsSpecial(token)) {
    const std::optional<Symbol> symbol = form_->SymbolOf(token);
    return symbol ? walk_.Step(state_, *symbol) : SymbolWalk::kDead;
  }
  SymbolWalk::State state = state_;
  for (const char c : tokenizer.BytesOf(token)) {
    if (state == SymbolWalk::kDead) break;
    state = walk_.Step(state, static_cast<unsigned char>(c));
  }
  return state;
}

void AnswerFormWalk::Accept(TokenId token) {
  const SymbolWalk::State after = After(token);
  if (after == SymbolWalk::kDead) {
    lost_ = true;
    return;
  }
  ended_ = token == form_->MarkerOf(kEndSymbol);
  const size_t built = walk_.built();
  state_ = walk_.Trim(after);
  if (walk_.built() < built) allowed_.clear();  // states have new numbers
}

}  // namespace deltafin
