#include "text/symbol_walk.h"

#include <algorithm>

namespace deltafin {
namespace {

constexpr size_t kMostStacks = 200'000;
constexpr size_t kMostStates = 20'000;

}  // namespace

size_t SymbolWalk::StackHash::operator()(const StackKey& key) const {
  uint64_t h = static_cast<uint64_t>(key.node) * 0x9e3779b97f4a7c15u;
  h = (h ^ static_cast<uint64_t>(key.progress)) * 0xbf58476d1ce4e5b9u;
  h = (h ^ (h >> 29) ^ static_cast<uint64_t>(key.below)) * 0x94d049bb133111ebu;
  return static_cast<size_t>(h ^ (h >> 31));
}

SymbolWalk::SymbolWalk(const SymbolGrammar& grammar) : grammar_(grammar) {
  TextId("");
  std::vector<int32_t> seen, out;
  Expand(Push(grammar.root(), 0, kBottom), seen, out);
  start_ = Intern(std::move(out));
}

int64_t SymbolWalk::TextId(const std::string& text) {
  const auto [at, fresh] = text_ids_.emplace(text, static_cast<int64_t>(texts_.size()));
  if (fresh) texts_.push_back(text);
  return at->second;
}

int64_t SymbolWalk::OwnMissing(const StackKey& key) const {
  const GrammarNode& node = grammar_.node(key.node);
  switch (node.kind) {
    case GrammarNode::Kind::kLiteral:
      return static_cast<int64_t>(node.literal.size()) - key.progress;
    case GrammarNode::Kind::kRepeat: {
      const int64_t times = std::max<int64_t>(0, node.fewest - key.progress);
      return times == 0 ? 0 : std::min(SymbolGrammar::kEndless, times * grammar_.shortest(node.children[0]));
    }
    case GrammarNode::Kind::kNumber:
      return node.range.Missing(texts_[static_cast<size_t>(key.progress)]).value_or(SymbolGrammar::kEndless);
    default:
      return grammar_.shortest(key.node);
  }
}

int32_t SymbolWalk::Push(NodeId node, int64_t progress, int32_t below) {
  const StackKey key{node, progress, below};
  const auto found = stack_ids_.find(key);
  if (found != stack_ids_.end()) return found->second;
  const int64_t under = below == kBottom ? 0 : stacks_[static_cast<size_t>(below)].missing;
  stacks_.push_back({node, progress, below, std::min(SymbolGrammar::kEndless, OwnMissing(key) + under)});
  const auto id = static_cast<int32_t>(stacks_.size() - 1);
  stack_ids_.emplace(key, id);
  return id;
}

// Replaces what is on top until it is something that takes a symbol.
void SymbolWalk::Expand(int32_t stack, std::vector<int32_t>& seen, std::vector<int32_t>& out) {
  if (stack == kBottom) {
    out.push_back(kBottom);
    return;
  }
  if (std::find(seen.begin(), seen.end(), stack) != seen.end()) return;
  seen.push_back(stack);
  const Stack top = stacks_[static_cast<size_t>(stack)];
  const GrammarNode& node = grammar_.node(top.node);
  switch (node.kind) {
    case GrammarNode::Kind::kLiteral:
      if (top.progress == static_cast<int64_t>(node.literal.size())) return Expand(top.below, seen, out);
      out.push_back(stack);
      return;
    case GrammarNode::Kind::kSet:
    case GrammarNode::Kind::kNumber:
      out.push_back(stack);
      return;
    case GrammarNode::Kind::kSequence: {
      int32_t below = top.below;
      for (size_t i = node.children.size(); i-- > 0;) below = Push(node.children[i], 0, below);
      return Expand(below, seen, out);
    }
    case GrammarNode::Kind::kChoice:
      for (const NodeId child : node.children) Expand(Push(child, 0, top.below), seen, out);
      return;
    case GrammarNode::Kind::kRepeat: {
      if (top.progress >= node.fewest) Expand(top.below, seen, out);
      if (node.most >= 0 && top.progress >= node.most) return;
      // Without an upper bound nothing beyond `fewest` needs to be counted.
      const int64_t times = node.most < 0 ? std::min(top.progress + 1, node.fewest) : top.progress + 1;
      return Expand(Push(node.children[0], 0, Push(top.node, times, top.below)), seen, out);
    }
  }
}

void SymbolWalk::AdvanceNumber(const Stack& top, Symbol symbol, std::vector<int32_t>& seen, std::vector<int32_t>& out) {
  const NumberRange& range = grammar_.node(top.node).range;
  std::string text = texts_[static_cast<size_t>(top.progress)];
  if (symbol < 256) text.push_back(static_cast<char>(symbol));
  const bool digit = symbol == '-' || symbol == '.' || (symbol >= '0' && symbol <= '9');
  if (digit && range.Missing(text)) out.push_back(Push(top.node, TextId(text), top.below));
  if (range.Missing(texts_[static_cast<size_t>(top.progress)]) != 0) return;
  // The number may be over: the symbol belongs to what follows.
  std::vector<int32_t> before_symbol, after;
  Expand(top.below, before_symbol, after);
  for (const int32_t stack : after)
    if (stack != kBottom) Advance(stack, symbol, seen, out);
}

void SymbolWalk::Advance(int32_t stack, Symbol symbol, std::vector<int32_t>& seen, std::vector<int32_t>& out) {
  const Stack top = stacks_[static_cast<size_t>(stack)];
  const GrammarNode& node = grammar_.node(top.node);
  if (node.kind == GrammarNode::Kind::kNumber) return AdvanceNumber(top, symbol, seen, out);
  if (node.kind == GrammarNode::Kind::kSet) {
    if (node.set.test(symbol)) Expand(top.below, seen, out);
    return;
  }
  if (node.literal[static_cast<size_t>(top.progress)] != symbol) return;
  if (top.progress + 1 == static_cast<int64_t>(node.literal.size())) return Expand(top.below, seen, out);
  out.push_back(Push(top.node, top.progress + 1, top.below));
}

SymbolWalk::State SymbolWalk::Intern(std::vector<int32_t> stacks) {
  std::sort(stacks.begin(), stacks.end());
  stacks.erase(std::unique(stacks.begin(), stacks.end()), stacks.end());
  const auto found = state_ids_.find(stacks);
  if (found != state_ids_.end()) return found->second;
  StateData data;
  data.missing = SymbolGrammar::kEndless;
  for (const int32_t stack : stacks)
    data.missing = std::min(data.missing, stack == kBottom ? 0 : stacks_[static_cast<size_t>(stack)].missing);
  data.stacks = stacks;
  states_.push_back(std::move(data));
  const auto id = static_cast<State>(states_.size() - 1);
  state_ids_.emplace(std::move(stacks), id);
  return id;
}

SymbolWalk::State SymbolWalk::Step(State state, Symbol symbol) {
  {
    StateData& data = states_[static_cast<size_t>(state)];
    if (data.next.empty()) data.next.assign(kSymbolCount, kUnknown);
    if (data.next[symbol] != kUnknown) return data.next[symbol];
  }
  std::vector<int32_t> seen, out;
  const std::vector<int32_t> stacks = states_[static_cast<size_t>(state)].stacks;
  for (const int32_t stack : stacks)
    if (stack != kBottom) Advance(stack, symbol, seen, out);
  // Stacks that can never end are none.
  std::erase_if(out, [&](int32_t stack) {
    return stack != kBottom && stacks_[static_cast<size_t>(stack)].missing >= SymbolGrammar::kEndless;
  });
  const State next = out.empty() ? kDead : Intern(std::move(out));
  states_[static_cast<size_t>(state)].next[symbol] = next;
  return next;
}

SymbolWalk::State SymbolWalk::Trim(State state) {
  if (stacks_.size() < kMostStacks && states_.size() < kMostStates) return state;
  const std::vector<Stack> old = std::move(stacks_);
  const std::vector<std::string> old_texts = std::move(texts_);
  const std::vector<int32_t> kept = states_[static_cast<size_t>(state)].stacks;
  stacks_.clear();
  texts_.clear();
  stack_ids_.clear();
  states_.clear();
  state_ids_.clear();
  text_ids_.clear();
  TextId("");
  std::vector<int32_t> moved;
  for (const int32_t stack : kept) {
    std::vector<int32_t> path;
    for (int32_t at = stack; at != kBottom; at = old[static_cast<size_t>(at)].below) path.push_back(at);
    int32_t below = kBottom;
    for (size_t i = path.size(); i-- > 0;) {
      const Stack& one = old[static_cast<size_t>(path[i])];
      const bool number = grammar_.node(one.node).kind == GrammarNode::Kind::kNumber;
      const int64_t progress = number ? TextId(old_texts[static_cast<size_t>(one.progress)]) : one.progress;
      below = Push(one.node, progress, below);
    }
    moved.push_back(below);
  }
  return Intern(std::move(moved));
}

}  // namespace deltafin
