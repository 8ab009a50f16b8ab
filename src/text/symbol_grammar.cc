#include "text/symbol_grammar.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace deltafin {
namespace {

// Whole numbers of so many digits are exact in a double.
constexpr size_t kMostDigits = 15;
constexpr int kMostFractionDigits = 12;

double PowerOfTen(int exponent) {
  double power = 1;
  for (int i = 0; i < exponent; ++i) power *= 10;
  return power;
}

// A number text so far.
struct Digits {
  bool negative = false, dot = false;
  std::string whole, fraction;
};

bool Parse(std::string_view text, Digits* digits) {
  size_t at = 0;
  if (at < text.size() && text[at] == '-') {
    digits->negative = true;
    ++at;
  }
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '.') {
      if (digits->dot || digits->whole.empty()) return false;
      digits->dot = true;
    } else if (c < '0' || c > '9') {
      return false;
    } else if (digits->dot) {
      digits->fraction.push_back(c);
    } else {
      if (digits->whole == "0") return false;
      digits->whole.push_back(c);
    }
  }
  return digits->whole.size() + digits->fraction.size() <= kMostDigits &&
         digits->fraction.size() <= kMostFractionDigits;
}

// Whether the range holds one of first/scale, (first + 1)/scale, ... last/scale, all of them negative if so asked.
bool HoldsOneOf(const NumberRange& range, double first, double last, double scale, bool negative) {
  const double sign = negative ? -1 : 1;
  const double from = negative ? -range.most : range.least, to = negative ? -range.least : range.most;
  const double begin = std::clamp(std::floor(from * scale) - 1, first, last);
  const double end = std::clamp(std::ceil(to * scale) + 1, first, last);
  // The edges may be off by what the multiplication rounded.
  for (int i = 0; i <= 4; ++i) {
    if (begin + i <= last && range.Contains(sign * (begin + i) / scale)) return true;
    if (end - i >= first && range.Contains(sign * (end - i) / scale)) return true;
  }
  return false;
}

std::optional<int64_t> MissingFraction(const NumberRange& range, const Digits& d) {
  const int have = static_cast<int>(d.fraction.size());
  const double base = std::strtod((d.whole + d.fraction).c_str(), nullptr);
  const int most = std::min(kMostFractionDigits, static_cast<int>(kMostDigits - d.whole.size()));
  for (int more = have == 0 ? 1 : 0; have + more <= most; ++more) {
    const double span = PowerOfTen(more);
    if (HoldsOneOf(range, base * span, base * span + span - 1, PowerOfTen(have + more), d.negative)) return more;
  }
  return std::nullopt;
}

std::optional<int64_t> MissingWhole(const NumberRange& range, const Digits& d) {
  std::optional<int64_t> best;
  const double base = std::strtod(d.whole.c_str(), nullptr);
  const int most = d.whole == "0" ? 0 : static_cast<int>(kMostDigits - d.whole.size());
  for (int more = 0; more <= most && (!best || more < *best); ++more) {
    const double span = PowerOfTen(more), first = base * span, last = first + span - 1;
    if (HoldsOneOf(range, first, last, 1, d.negative)) return best ? std::min<int64_t>(*best, more) : more;
    if (range.whole) continue;
    const int most_digits = std::min(kMostFractionDigits, static_cast<int>(kMostDigits - d.whole.size()) - more);
    for (int digits = 1; digits <= most_digits; ++digits) {
      const double scale = PowerOfTen(digits);
      if (!HoldsOneOf(range, first * scale, (last + 1) * scale - 1, scale, d.negative)) continue;
      if (!best || more + 1 + digits < *best) best = more + 1 + digits;
      break;
    }
  }
  return best;
}

}  // namespace

bool NumberRange::Contains(double value) const {
  return (least_excluded ? value > least : value >= least) && (most_excluded ? value < most : value <= most) &&
         (!whole || value == std::floor(value));
}

std::optional<int64_t> NumberRange::Missing(std::string_view text) const {
  Digits digits;
  if (!Parse(text, &digits) || (digits.dot && whole)) return std::nullopt;
  if (!digits.whole.empty()) return digits.dot ? MissingFraction(*this, digits) : MissingWhole(*this, digits);
  std::optional<int64_t> best;
  for (const char c : std::string_view("-0123456789")) {
    if (c == '-' && !text.empty()) continue;
    const std::optional<int64_t> missing = Missing(std::string(text) + c);
    if (missing && (!best || *missing + 1 < *best)) best = *missing + 1;
  }
  return best;
}

NodeId SymbolGrammar::Add(GrammarNode node) {
  nodes_.push_back(std::move(node));
  return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId SymbolGrammar::Literal(std::string_view bytes) {
  GrammarNode node{.kind = GrammarNode::Kind::kLiteral};
  for (const char c : bytes) node.literal.push_back(static_cast<unsigned char>(c));
  return Add(std::move(node));
}

NodeId SymbolGrammar::Marker(Symbol symbol) {
  GrammarNode node{.kind = GrammarNode::Kind::kLiteral};
  node.literal = {symbol};
  return Add(std::move(node));
}

NodeId SymbolGrammar::Set(const SymbolSet& set) {
  GrammarNode node{.kind = GrammarNode::Kind::kSet};
  node.set = set;
  return Add(std::move(node));
}

NodeId SymbolGrammar::Sequence(std::vector<NodeId> children) {
  GrammarNode node{.kind = GrammarNode::Kind::kSequence};
  node.children = std::move(children);
  return Add(std::move(node));
}

NodeId SymbolGrammar::Choice(std::vector<NodeId> children) {
  GrammarNode node{.kind = GrammarNode::Kind::kChoice};
  node.children = std::move(children);
  return Add(std::move(node));
}

NodeId SymbolGrammar::Repeat(NodeId child, int64_t fewest, int64_t most) {
  GrammarNode node{.kind = GrammarNode::Kind::kRepeat};
  node.children = {child};
  node.fewest = fewest;
  node.most = most;
  return Add(std::move(node));
}

NodeId SymbolGrammar::Number(const NumberRange& range) {
  GrammarNode node{.kind = GrammarNode::Kind::kNumber};
  node.range = range;
  return Add(std::move(node));
}

int64_t SymbolGrammar::ShortestOf(const GrammarNode& node) const {
  const auto of = [&](NodeId child) { return shortest_[static_cast<size_t>(child)]; };
  int64_t sum = 0;
  switch (node.kind) {
    case GrammarNode::Kind::kLiteral:
      return static_cast<int64_t>(node.literal.size());
    case GrammarNode::Kind::kSet:
      return node.set.any() ? 1 : kEndless;
    case GrammarNode::Kind::kSequence:
      for (const NodeId child : node.children) sum = std::min(kEndless, sum + of(child));
      return sum;
    case GrammarNode::Kind::kChoice:
      sum = kEndless;
      for (const NodeId child : node.children) sum = std::min(sum, of(child));
      return sum;
    case GrammarNode::Kind::kRepeat:
      if (node.fewest == 0) return 0;
      return of(node.children[0]) >= kEndless / node.fewest ? kEndless : node.fewest * of(node.children[0]);
    case GrammarNode::Kind::kNumber:
      return node.range.Missing("").value_or(kEndless);
  }
  return kEndless;
}

Status SymbolGrammar::Finish(NodeId root) {
  root_ = root;
  shortest_.assign(nodes_.size(), kEndless);
  for (size_t i = 0; i < nodes_.size(); ++i)  // these depend on nothing
    if (nodes_[i].children.empty() && nodes_[i].kind != GrammarNode::Kind::kChoice)
      shortest_[i] = ShortestOf(nodes_[i]);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = nodes_.size(); i-- > 0;) {
      if (nodes_[i].children.empty()) continue;
      const int64_t now = ShortestOf(nodes_[i]);
      changed |= now != shortest_[i];
      shortest_[i] = now;
    }
  }
  if (shortest(root) < kEndless) return {};
  return Fail(ErrorCode::kUnsupported, "schema: nothing can satisfy it, or only what never ends");
}

}  // namespace deltafin
