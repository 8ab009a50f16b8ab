#include "text/pretokenizer.h"

#include <cstdint>

#include "base/check.h"
#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace deltafin {

namespace {

// Beside the flags of CharClass.
constexpr uint8_t kLineBreak = 64;  // CR or LF
constexpr uint8_t kNotPrefix = kLineBreak | kClassLetter | kClassNumber;
constexpr uint8_t kNotSymbol = kClassSpace | kClassLetter | kClassNumber;
constexpr size_t kNoMatch = static_cast<size_t>(-1);

// One scan over a stretch. Positions count characters; "end" is the position after the last one.
//
//   1  Han+                    5  [U+0020]? (not space, letter, number)+ linebreak*
//   2  P? A* B+ contraction?   6  space* linebreak+
//   3  P? A+ B* contraction?   7  space+ not before a non-space
//   4  N{1,3}                  8  space+
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {
    const UnicodeClasses& classes = UnicodeClasses::Get();
    flags_.reserve(text.size());
    starts_.reserve(text.size() + 1);
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = NextCodePoint(text.substr(at));
      const bool line_break = point.value == U'\r' || point.value == U'\n';
      flags_.push_back(static_cast<uint8_t>(classes.Of(point.value) | (line_break ? kLineBreak : 0)));
      starts_.push_back(at);
      at += point.length;
    }
    starts_.push_back(text.size());
  }

  std::vector<std::string_view> Split() const {
    std::vector<std::string_view> pieces;
    for (size_t i = 0; i < size();) {
      const size_t end = PieceEnd(i);
      DFIN_DCHECK(end > i && end <= size(), "a piece has at least one character");
      pieces.push_back(text_.substr(starts_[i], starts_[end] - starts_[i]));
      i = end;
    }
    return pieces;
  }

 private:
  size_t size() const { return flags_.size(); }
  bool Is(size_t i, uint8_t classes) const { return (flags_[i] & classes) != 0; }

  size_t RunEnd(size_t i, uint8_t classes) const {
    while (i < size() && Is(i, classes)) ++i;
    return i;
  }

  size_t PieceEnd(size_t i) const {
    if (Is(i, kClassHan)) return RunEnd(i, kClassHan);
    const size_t word = WordEnd(i);
    if (word != kNoMatch) return ContractionEnd(word);
    if (Is(i, kClassNumber)) {
      size_t end = i + 1;
      while (end < size() && end < i + 3 && Is(end, kClassNumber)) ++end;
      return end;
    }
    const size_t symbols = text_[starts_[i]] == ' ' ? i + 1 : i;
    if (symbols < size() && !Is(symbols, kNotSymbol)) return SymbolsEnd(symbols);
    return SpacesEnd(i);
  }

  // Alternatives 2 and 3 without the contraction, each first with a prefix character, then without.
  size_t WordEnd(size_t i) const {
    const bool prefix = !Is(i, kNotPrefix);
    size_t end = kNoMatch;
    if (prefix) end = LowerWordEnd(i + 1);
    if (end == kNoMatch) end = LowerWordEnd(i);
    if (end == kNoMatch && prefix) end = UpperWordEnd(i + 1);
    if (end == kNoMatch) end = UpperWordEnd(i);
    return end;
  }

  // A* B+ from p. When nothing of B follows the run of A, the run gives back what lies after its last B.
  size_t LowerWordEnd(size_t p) const {
    const size_t upper = RunEnd(p, kClassA);
    const size_t lower = RunEnd(upper, kClassB);
    if (lower > upper) return lower;
    for (size_t k = upper; k > p; --k) {
      if (Is(k - 1, kClassB)) return k;
    }
    return kNoMatch;
  }

  // A+ B* from p.
  size_t UpperWordEnd(size_t p) const {
    const size_t upper = RunEnd(p, kClassA);
    return upper == p ? kNoMatch : RunEnd(upper, kClassB);
  }

  // After a word: 's 't 're 've 'm 'll 'd in any case, where U+017F (long s) also counts as s.
  size_t ContractionEnd(size_t i) const {
    if (i + 1 >= size() || text_[starts_[i]] != '\'') return i;
    const char first = LowerAt(i + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return i + 2;
    if (i + 2 >= size()) return i;
    const char second = LowerAt(i + 2);
    const bool two =
        (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
    return two ? i + 3 : i;
  }

  // The ASCII letter that character i folds to, or 0.
  char LowerAt(size_t i) const {
    const std::string_view character = text_.substr(starts_[i], starts_[i + 1] - starts_[i]);
    if (character == "\xC5\xBF") return 's';
    if (character.size() != 1) return 0;
    const char c = character[0];
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }

  size_t SymbolsEnd(size_t i) const {
    while (i < size() && !Is(i, kNotSymbol)) ++i;
    return RunEnd(i, kLineBreak);
  }

  size_t SpacesEnd(size_t i) const {
    const size_t end = RunEnd(i, kClassSpace);
    for (size_t k = end; k > i; --k) {
      if (Is(k - 1, kLineBreak)) return k;
    }
    if (end == size() || end - i < 2) return end;
    return end - 1;  // the last space becomes the prefix of what follows
  }

  std::string_view text_;
  std::vector<uint8_t> flags_;
  std::vector<size_t> starts_;  // byte offset of each character, then the length of the text
};

}  // namespace

std::vector<std::string_view> SplitParts(std::string_view text, const SplitLimits& limits) {
  std::vector<std::string_view> parts;
  size_t start = 0;     // of the current part, in bytes
  size_t in_slice = 0;  // characters
  size_t run = 0;
  bool run_is_space = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = NextCodePoint(text.substr(at));
    const bool space = IsPythonSpace(point.value);
    const bool slice_full = in_slice == limits.max_slice;
    if (slice_full) in_slice = 0;
    run = run == 0 || in_slice == 0 || space != run_is_space ? 1 : run + 1;
    if (slice_full || run > limits.max_run) {
      parts.push_back(text.substr(start, at - start));
      start = at;
      run = 1;
    }
    run_is_space = space;
    ++in_slice;
    at += point.length;
  }
  if (start < text.size()) parts.push_back(text.substr(start));
  return parts;
}

std::vector<std::string_view> SplitPieces(std::string_view stretch) { return Scanner(stretch).Split(); }

}  // namespace deltafin
