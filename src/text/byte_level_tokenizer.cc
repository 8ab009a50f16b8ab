#include "text/byte_level_tokenizer.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "base/model_file.h"
#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace deltafin {
namespace {

// The release's has 7 MB, of newer writers 11.
constexpr uint64_t kMostFileBytes = uint64_t{64} << 20;
constexpr uint8_t kLineBreak = 64;  // CR or LF, beside the flags of CharClass
constexpr uint8_t kWordOrNumber = kClassLetter | kClassNumber;
constexpr uint32_t kEnd = UINT32_MAX;

// One scan over a text; positions count characters. The pattern's alternatives:
//   1  's 't 're 've 'm 'll 'd      4  [U+0020]? (not space, letter, number)+ linebreak*
//   2  prefix? letter+              5  space* linebreak+
//   3  number                       6  space+ not before a non-space;   7  space+
class PieceScanner {
 public:
  explicit PieceScanner(std::string_view text) : text_(text) {
    const UnicodeClasses& classes = UnicodeClasses::Get();
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
      pieces.push_back(text_.substr(starts_[i], starts_[end] - starts_[i]));
      i = end;
    }
    return pieces;
  }

 private:
  size_t size() const { return flags_.size(); }
  bool Is(size_t i, uint8_t classes) const { return i < size() && (flags_[i] & classes) != 0; }
  bool IsSymbol(size_t i) const { return i < size() && (flags_[i] & (kClassSpace | kWordOrNumber)) == 0; }

  size_t RunEnd(size_t i, uint8_t classes) const {
    while (Is(i, classes)) ++i;
    return i;
  }

  size_t PieceEnd(size_t i) const {
    const size_t contraction = ContractionEnd(i);
    if (contraction != i) return contraction;
    if (Is(i, kClassLetter)) return RunEnd(i, kClassLetter);
    if (!Is(i, kLineBreak | kClassNumber) && Is(i + 1, kClassLetter)) return RunEnd(i + 1, kClassLetter);
    if (Is(i, kClassNumber)) return i + 1;
    size_t symbols = text_[starts_[i]] == ' ' ? i + 1 : i;
    if (IsSymbol(symbols)) {
      while (IsSymbol(symbols)) ++symbols;
      return RunEnd(symbols, kLineBreak);
    }
    return SpacesEnd(i);
  }

  size_t SpacesEnd(size_t i) const {
    const size_t end = RunEnd(i, kClassSpace);
    for (size_t k = end; k > i; --k)
      if (Is(k - 1, kLineBreak)) return k;
    if (end == size() || end - i < 2) return end;
    return end - 1;  // the last space becomes the prefix of what follows
  }

  size_t ContractionEnd(size_t i) const {
    if (text_[starts_[i]] != '\'') return i;
    const char first = LowerAt(i + 1), second = LowerAt(i + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return i + 2;
    const bool two =
        (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
    return two ? i + 3 : i;
  }

  // The ASCII letter that character i folds to, or 0.
  char LowerAt(size_t i) const {
    if (i >= size()) return 0;
    const std::string_view character = text_.substr(starts_[i], starts_[i + 1] - starts_[i]);
    if (character == "\xC5\xBF") return 's';  // long s
    if (character.size() != 1) return 0;
    const char c = character[0];
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }

  std::string_view text_;
  std::vector<uint8_t> flags_;
  std::vector<size_t> starts_;  // byte offset of each character, then the length of the text
};

}  // namespace

// Merges one piece: of all adjacent pairs that join, the one named first in the file, the leftmost on equal terms.
class ByteLevelMerger {
 public:
  ByteLevelMerger(const ByteLevelTokenizer& tokenizer, std::string_view piece) : tokenizer_(tokenizer) {
    const auto count = static_cast<uint32_t>(piece.size());
    for (uint32_t i = 0; i < count; ++i)
      symbols_.push_back({tokenizer.of_byte_[static_cast<unsigned char>(piece[i])], i == 0 ? kEnd : i - 1,
                          i + 1 == count ? kEnd : i + 1, true});
    for (uint32_t i = 0; i + 1 < count; ++i) Consider(i);
  }

  void MergeAll() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      Symbol& left = symbols_[best.left];
      if (!left.alive || left.next == kEnd) continue;
      Symbol& right = symbols_[left.next];
      const ByteLevelTokenizer::Join* join = Find(left.id, right.id);
      if (join == nullptr || join->rank != best.rank) continue;  // one of the two has become another token
      left.id = join->joined;
      left.next = right.next;
      right.alive = false;
      if (left.next != kEnd) symbols_[left.next].previous = best.left;
      if (left.previous != kEnd) Consider(left.previous);
      if (left.next != kEnd) Consider(best.left);
    }
  }

  void AppendTo(std::vector<TokenId>* ids) const {
    for (uint32_t i = 0; i != kEnd; i = symbols_[i].next) ids->push_back(symbols_[i].id);
  }

 private:
  struct Symbol {
    TokenId id;
    uint32_t previous, next;
    bool alive;
  };
  struct Candidate {
    int32_t rank;
    uint32_t left;
    bool operator>(const Candidate& other) const { return std::tie(rank, left) > std::tie(other.rank, other.left); }
  };

  const ByteLevelTokenizer::Join* Find(TokenId left, TokenId right) const {
    const auto it = tokenizer_.joins_.find(ByteLevelTokenizer::PairKey(left, right));
    return it == tokenizer_.joins_.end() ? nullptr : &it->second;
  }
  void Consider(uint32_t left) {
    const Symbol& symbol = symbols_[left];
    if (const auto* join = Find(symbol.id, symbols_[symbol.next].id)) queue_.push({join->rank, left});
  }

  const ByteLevelTokenizer& tokenizer_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue_;
};

std::vector<std::string_view> ByteLevelPieces(std::string_view text) { return PieceScanner(text).Split(); }

Result<ByteLevelTokenizer> ByteLevelTokenizer::Load(const std::string& path) {
  DFIN_TRY(const std::string json, ReadModelFile(path, kMostFileBytes));
  DFIN_TRY(ByteLevelParts parts, ParseByteLevelFile(json, path));
  return ByteLevelTokenizer(std::move(parts));
}

ByteLevelTokenizer::ByteLevelTokenizer(ByteLevelParts parts) : tokens_(std::move(parts.tokens)), of_byte_(256) {
  for (size_t id = 0; id < tokens_.size(); ++id)
    if (tokens_[id].size() == 1) of_byte_[static_cast<unsigned char>(tokens_[id][0])] = static_cast<TokenId>(id);
  joins_.reserve(parts.merges.size());
  for (size_t rank = 0; rank < parts.merges.size(); ++rank) {
    const ByteLevelMerge& merge = parts.merges[rank];
    joins_.try_emplace(PairKey(merge.left, merge.right), Join{static_cast<int32_t>(rank), merge.joined});
  }
  token_count_ = parts.added.empty() ? text_count() : parts.added.back() + 1;
}

std::vector<TokenId> ByteLevelTokenizer::Encode(std::string_view text) const {
  const std::string normal = ToNormalFormC(text);
  std::vector<TokenId> ids;
  for (const std::string_view piece : ByteLevelPieces(normal)) {
    ByteLevelMerger merger(*this, piece);
    merger.MergeAll();
    merger.AppendTo(&ids);
  }
  return ids;
}

std::string_view ByteLevelTokenizer::BytesOf(TokenId id) const {
  return IsText(id) ? std::string_view(tokens_[static_cast<size_t>(id)]) : std::string_view();
}

}  // namespace deltafin
