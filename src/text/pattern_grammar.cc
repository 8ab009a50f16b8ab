// Regular expressions -> nodes.
#include <algorithm>
#include <bitset>

#include "text/json_grammar.h"
#include "text/utf8.h"

namespace deltafin {
namespace {

constexpr int kMostNesting = 64;
constexpr int64_t kMostTimes = 1000;

// ASCII characters one by one; of the others only whether all of them, and single ones.
struct CharacterSet {
  std::bitset<128> ascii;
  bool others = false;
  std::vector<std::string> single;  // UTF-8

  void Add(char from, char to) {
    for (int c = from; c <= to; ++c) ascii.set(static_cast<size_t>(c));
  }
  void Negate() {
    ascii.flip();
    others = !others;
  }
};

SymbolSet Range(int from, int to) {
  SymbolSet set;
  for (int c = from; c <= to; ++c) set.set(static_cast<size_t>(c));
  return set;
}

// Well-formed UTF-8 of two to four bytes (Unicode, table 3-7).
std::vector<NodeId> Multibyte(SymbolGrammar& g) {
  const NodeId tail = g.Set(Range(0x80, 0xbf));
  const auto lead = [&](int from, int to) { return g.Set(Range(from, to)); };
  return {g.Sequence({lead(0xc2, 0xdf), tail}),
          g.Sequence({lead(0xe0, 0xe0), g.Set(Range(0xa0, 0xbf)), tail}),
          g.Sequence({lead(0xe1, 0xec), tail, tail}),
          g.Sequence({lead(0xed, 0xed), g.Set(Range(0x80, 0x9f)), tail}),
          g.Sequence({lead(0xee, 0xef), tail, tail}),
          g.Sequence({lead(0xf0, 0xf0), g.Set(Range(0x90, 0xbf)), tail, tail}),
          g.Sequence({lead(0xf1, 0xf3), tail, tail, tail}),
          g.Sequence({lead(0xf4, 0xf4), g.Set(Range(0x80, 0x8f)), tail, tail})};
}

std::string Escape(int c) {
  static const char kHex[] = "0123456789abcdef";
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      return std::string("\\u00") + kHex[(c >> 4) & 15] + kHex[c & 15];
  }
}

NodeId CharacterNode(SymbolGrammar& g, const CharacterSet& set, StringForm form) {
  SymbolSet plain;
  std::vector<NodeId> choices;
  for (int c = 0; c < 128; ++c) {
    if (!set.ascii.test(static_cast<size_t>(c))) continue;
    if (form == StringForm::kPlain || (c >= 0x20 && c != '"' && c != '\\'))
      plain.set(static_cast<size_t>(c));
    else
      choices.push_back(g.Literal(Escape(c)));
  }
  if (plain.any()) choices.push_back(g.Set(plain));
  if (set.others)
    for (const NodeId node : Multibyte(g)) choices.push_back(node);
  for (const std::string& text : set.single) choices.push_back(g.Literal(text));
  return choices.size() == 1 ? choices[0] : g.Choice(std::move(choices));
}

CharacterSet AllCharacters() {
  CharacterSet set;
  set.ascii.set();
  set.others = true;
  return set;
}

class PatternReader {
 public:
  PatternReader(SymbolGrammar& g, std::string_view pattern, StringForm form) : g_(g), p_(pattern), form_(form) {}

  Result<NodeId> Read() {
    DFIN_TRY(const NodeId node, Alternatives(0, true));
    if (at_ < p_.size()) return Bad("an unmatched )");
    return node;
  }

 private:
  Failure Bad(std::string_view what) const {
    return Fail(ErrorCode::kUnsupported, "pattern: ", what, " at character ", at_, " cannot be enforced");
  }
  bool Next(char c) {
    if (at_ >= p_.size() || p_[at_] != c) return false;
    ++at_;
    return true;
  }
  NodeId Anything() { return g_.Repeat(AnyCharacter(g_, form_), 0); }

  Result<NodeId> Alternatives(int depth, bool top) {
    if (depth > kMostNesting) return Bad("so deep a group");
    std::vector<NodeId> choices;
    do {
      DFIN_TRY(const NodeId one, Terms(depth, top));
      choices.push_back(one);
    } while (Next('|'));
    return choices.size() == 1 ? choices[0] : g_.Choice(std::move(choices));
  }

  // What is not anchored at the top may have anything around it.
  Result<NodeId> Terms(int depth, bool top) {
    std::vector<NodeId> terms;
    if (top && !Next('^')) terms.push_back(Anything());
    bool anchored = false;
    while (at_ < p_.size() && p_[at_] != '|' && p_[at_] != ')') {
      if (top && p_[at_] == '$' && (at_ + 1 == p_.size() || p_[at_ + 1] == '|')) {
        ++at_;
        anchored = true;
        break;
      }
      DFIN_TRY(const NodeId atom, Atom(depth));
      DFIN_TRY(const NodeId repeated, Quantified(atom));
      terms.push_back(repeated);
    }
    if (top && !anchored) terms.push_back(Anything());
    return g_.Sequence(std::move(terms));
  }

  Result<NodeId> Quantified(NodeId atom) {
    int64_t fewest = 1, most = 1;
    if (Next('*')) {
      fewest = 0, most = -1;
    } else if (Next('+')) {
      most = -1;
    } else if (Next('?')) {
      fewest = 0;
    } else if (at_ < p_.size() && p_[at_] == '{') {
      ++at_;
      if (!Times(&fewest, &most)) return Bad("these bounds");
    } else {
      return atom;
    }
    (void)Next('?');  // which of several matches is found does not matter here
    if (at_ < p_.size() && (p_[at_] == '*' || p_[at_] == '+' || p_[at_] == '{')) return Bad("a quantifier of one");
    return g_.Repeat(atom, fewest, most);
  }

  bool Times(int64_t* fewest, int64_t* most) {
    if (!Number(fewest)) return false;
    *most = *fewest;
    if (Next(',')) {
      *most = -1;
      if (at_ < p_.size() && p_[at_] != '}' && (!Number(most) || *most < *fewest)) return false;
    }
    return Next('}');
  }
  bool Number(int64_t* value) {
    const size_t begin = at_;
    for (*value = 0; at_ < p_.size() && p_[at_] >= '0' && p_[at_] <= '9'; ++at_)
      *value = std::min<int64_t>(*value * 10 + (p_[at_] - '0'), kMostTimes + 1);
    return at_ > begin && *value <= kMostTimes;
  }

  Result<NodeId> Atom(int depth) {
    const char c = p_[at_];
    if (c == '(') {
      ++at_;
      if (Next('?') && !Next(':')) return Bad("look-around or a named group");
      DFIN_TRY(const NodeId inner, Alternatives(depth + 1, false));
      if (!Next(')')) return Bad("a group without end");
      return inner;
    }
    if (c == '[') return Class();
    if (c == '^' || c == '$') return Bad("an anchor inside the text");
    if (c == '*' || c == '+' || c == '?' || c == '{') return Bad("a quantifier of nothing");
    CharacterSet set;
    if (c == '.') {
      ++at_;
      set = AllCharacters();
      set.ascii.reset('\n');
      set.ascii.reset('\r');
      return CharacterNode(g_, set, form_);
    }
    DFIN_TRY(set, OneOrEscape());
    return CharacterNode(g_, set, form_);
  }

  static CharacterSet ClassOf(char letter) {
    CharacterSet set;
    if (letter == 'd' || letter == 'D') set.Add('0', '9');
    if (letter == 'w' || letter == 'W') {
      set.Add('0', '9');
      set.Add('a', 'z');
      set.Add('A', 'Z');
      set.Add('_', '_');
    }
    if (letter == 's' || letter == 'S') {
      set.Add('\t', '\r');
      set.Add(' ', ' ');
    }
    if (letter == 'D' || letter == 'W') set.Negate();
    if (letter == 'S') set.ascii.flip();  // spaces beyond ASCII are left out rather than listed
    return set;
  }

  // A character, an escape, or a class by letter.
  Result<CharacterSet> OneOrEscape() {
    CharacterSet set;
    if (p_[at_] != '\\') {
      const CodePoint code = NextCodePoint(p_.substr(at_));
      if (code.value == kIllFormed) return Bad("what is no UTF-8");
      if (code.value < 128)
        set.ascii.set(code.value);
      else
        set.single.emplace_back(p_.substr(at_, code.length));
      at_ += code.length;
      return set;
    }
    ++at_;
    if (at_ >= p_.size()) return Bad("an escape of nothing");
    const char c = p_[at_++];
    if (std::string_view("dDwWsS").find(c) != std::string_view::npos) return ClassOf(c);
    static constexpr std::string_view kLetters = "ntrfv0", kMeant("\n\t\r\f\v\0", 6);
    const size_t letter = kLetters.find(c);
    if (letter != std::string_view::npos) {
      set.Add(kMeant[letter], kMeant[letter]);
      return set;
    }
    if (c == 'u' || c == 'x') return HexEscape(c == 'u' ? 4 : 2);
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
        static_cast<unsigned char>(c) >= 128)
      return Bad("this escape");
    set.Add(c, c);
    return set;
  }

  Result<CharacterSet> HexEscape(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = at_ < p_.size() ? p_[at_] : ' ';
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return Bad("this escape");
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value >= 0xd800 && value < 0xe000) return Bad("half of a surrogate pair");
    CharacterSet set;
    if (value < 128) {
      set.ascii.set(value);
    } else {
      std::string text;
      AppendUtf8(value, &text);
      set.single.push_back(std::move(text));
    }
    return set;
  }

  Result<NodeId> Class() {
    ++at_;
    const bool negated = Next('^');
    CharacterSet set;
    while (at_ < p_.size() && p_[at_] != ']') {
      DFIN_TRY(CharacterSet one, OneOrEscape());
      if (at_ + 1 < p_.size() && p_[at_] == '-' && p_[at_ + 1] != ']') {
        ++at_;
        DFIN_TRY(const CharacterSet last, OneOrEscape());
        if (one.ascii.count() != 1 || last.ascii.count() != 1) return Bad("a range beyond ASCII");
        size_t from = 0, to = 0;
        while (!one.ascii.test(from)) ++from;
        while (!last.ascii.test(to)) ++to;
        if (from > to) return Bad("a range that runs backwards");
        one.Add(static_cast<char>(from), static_cast<char>(to));
      }
      set.ascii |= one.ascii;
      set.others |= one.others;
      set.single.insert(set.single.end(), one.single.begin(), one.single.end());
    }
    if (!Next(']')) return Bad("a class without end");
    if (negated && !set.single.empty()) return Bad("a class without characters beyond ASCII");
    if (negated) set.Negate();
    if (set.ascii.none() && !set.others && set.single.empty()) return Bad("an empty class");
    return CharacterNode(g_, set, form_);
  }

  SymbolGrammar& g_;
  const std::string_view p_;
  const StringForm form_;
  size_t at_ = 0;
};

}  // namespace

NodeId AnyCharacter(SymbolGrammar& grammar, StringForm form) { return CharacterNode(grammar, AllCharacters(), form); }

Result<NodeId> PatternNode(SymbolGrammar& grammar, std::string_view pattern, StringForm form) {
  return PatternReader(grammar, pattern, form).Read();
}

}  // namespace deltafin
