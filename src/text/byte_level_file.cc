#include "text/byte_level_file.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/json.h"
#include "text/byte_level_tokenizer.h"
#include "text/utf8.h"

namespace deltafin {
namespace {

constexpr size_t kMostLevels = 16;
// Of everything but vocabulary and merges: the release has 26 added tokens of seven values.
constexpr size_t kMostSettings = 50'000;
constexpr int64_t kMostIds = 1 << 22;

constexpr std::string_view kVocab = "/model/vocab", kMerges = "/model/merges";
constexpr const char* kBadMerge = "model/merges: expected texts of two tokens, or pairs of texts";

// What the document says, collected while it is read. Settings are all single values but those of the two large lists,
// by their path: "/normalizer/type".
struct Document {
  std::unordered_map<std::string, int64_t> vocab;  // spelling -> id
  std::vector<std::vector<std::string>> merges;    // "left right", or left and right
  std::map<std::string, Json> settings;
};

class Reader final : public nlohmann::json_sax<Json> {
 public:
  explicit Reader(Document& document) : document_(document) {}
  const std::string& fault() const { return fault_; }

  bool null() override { return Value(nullptr); }
  bool boolean(bool value) override { return Value(value); }
  bool number_integer(number_integer_t value) override { return Value(value); }
  bool number_unsigned(number_unsigned_t value) override { return Value(value); }
  bool number_float(number_float_t value, const string_t&) override { return Value(value); }
  bool string(string_t& value) override { return Value(std::move(value)); }
  bool binary(binary_t&) override { return Fault("no JSON"); }
  bool start_object(std::size_t) override { return Open(false); }
  bool start_array(std::size_t) override { return Open(true); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    levels_.back().name = std::move(name);
    return true;
  }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception&) override {
    return Fault(Cat("not valid JSON at byte ", at));
  }

 private:
  struct Level {
    bool is_array = false;
    size_t count = 0;
    std::string name;
    size_t path = 0;  // length of the path before it
  };

  bool Fault(std::string what) {
    if (fault_.empty()) fault_ = std::move(what);
    return false;
  }

  bool Open(bool is_array) {
    if (levels_.size() == kMostLevels) return Fault(Cat("nested deeper than ", kMostLevels, " levels"));
    if (path_ == kMerges && !(is_array && levels_.back().is_array)) return Fault(kBadMerge);
    const size_t before = path_.size();
    if (!levels_.empty()) path_.append("/").append(Name());
    levels_.push_back({is_array, 0, "", before});
    if (is_array && InMerges()) document_.merges.emplace_back();
    return true;
  }
  bool Close() {
    path_.resize(levels_.back().path);
    levels_.pop_back();
    if (!levels_.empty()) ++levels_.back().count;
    return true;
  }
  std::string Name() const {
    return levels_.back().is_array ? std::to_string(levels_.back().count) : levels_.back().name;
  }
  // In one of the lists that are elements of the merges.
  bool InMerges() const { return levels_.size() == 4 && path_.starts_with(kMerges) && path_[kMerges.size()] == '/'; }

  bool Value(Json value) {
    if (levels_.empty()) return Fault("expected a JSON object");
    bool good = true;
    if (path_ == kVocab && !levels_.back().is_array) {
      good = Token(value);
    } else if (path_ == kMerges && levels_.back().is_array) {
      if (!value.is_string()) return Fault(kBadMerge);
      document_.merges.push_back({value.get<std::string>()});
    } else if (InMerges()) {
      if (!value.is_string() || document_.merges.empty() || document_.merges.back().size() == 2)
        return Fault(kBadMerge);
      document_.merges.back().push_back(value.get<std::string>());
    } else {
      good = Setting(std::move(value));
    }
    ++levels_.back().count;
    return good;
  }

  bool Token(const Json& id) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(kMostIds))
      return Fault("model/vocab: expected ids from 0 on");
    if (document_.vocab.emplace(levels_.back().name, id.get<int64_t>()).second) return true;
    return Fault(Cat("model/vocab: a token is named twice: ", levels_.back().name.substr(0, 40)));
  }

  bool Setting(Json value) {
    if (document_.settings.size() == kMostSettings) return Fault(Cat("more than ", kMostSettings, " settings"));
    std::string path = path_;
    path.append("/").append(Name());
    if (document_.settings.emplace(path, std::move(value)).second) return true;
    return Fault(Cat(path.substr(1, 80), ": expected once, got it twice"));
  }

  Document& document_;
  std::vector<Level> levels_;
  std::string path_;
  std::string fault_;
};

// The characters that stand for bytes: printable ones for themselves, the others from U+0100 on, in their order.
std::array<char32_t, 256> ByteCharacters() {
  std::array<char32_t, 256> out = {};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    out[byte] = printable ? static_cast<char32_t>(byte) : next++;
  }
  return out;
}

class Checker {
 public:
  Checker(const Document& document, const std::string& what) : document_(document), what_(what) {
    characters_.fill(-1);
    const std::array<char32_t, 256> of_bytes = ByteCharacters();
    for (size_t byte = 0; byte < 256; ++byte) characters_[of_bytes[byte]] = static_cast<int>(byte);
  }

  Result<ByteLevelParts> Check() {
    DFIN_TRY_VOID(CheckKind());
    DFIN_TRY_VOID(TakeTokens());
    DFIN_TRY_VOID(TakeMerges());
    DFIN_TRY_VOID(TakeAdded());
    return std::move(parts_);
  }

 private:
  Status Expect(const std::string& path, const Json& expected) const {
    const auto it = document_.settings.find(path);
    if (it != document_.settings.end() && it->second == expected) return {};
    return Fail(ErrorCode::kUnsupported, what_, ": ", path.substr(1), ": expected ", DumpJson(expected), ", got ",
                it == document_.settings.end() ? "nothing" : DumpJson(it->second).substr(0, 120));
  }
  // Absent, null, false and "" say the same.
  Status ExpectOff(const std::string& path) const {
    const auto it = document_.settings.lower_bound(path);
    if (it == document_.settings.end() || !it->first.starts_with(path)) return {};
    if (it->first == path && (it->second.is_null() || it->second == false || it->second == "")) return {};
    if (it->first != path && it->first[path.size()] != '/') return {};
    return Fail(ErrorCode::kUnsupported, what_, ": ", it->first.substr(1), ": expected it off, got ",
                DumpJson(it->second).substr(0, 80));
  }

  Status CheckKind() const {
    DFIN_TRY_VOID(Expect("/model/type", "BPE"));
    DFIN_TRY_VOID(Expect("/normalizer/type", "NFC"));
    const std::string pre = "/pre_tokenizer/pretokenizers/";
    DFIN_TRY_VOID(Expect("/pre_tokenizer/type", "Sequence"));
    DFIN_TRY_VOID(Expect(pre + "0/type", "Split"));
    DFIN_TRY_VOID(Expect(pre + "0/pattern/Regex", kByteLevelPattern));
    DFIN_TRY_VOID(Expect(pre + "0/behavior", "Isolated"));
    DFIN_TRY_VOID(ExpectOff(pre + "0/invert"));
    DFIN_TRY_VOID(Expect(pre + "1/type", "ByteLevel"));
    DFIN_TRY_VOID(Expect(pre + "1/add_prefix_space", false));
    DFIN_TRY_VOID(Expect(pre + "1/use_regex", false));
    DFIN_TRY_VOID(ExpectOff(pre + "2"));
    for (const char* off :
         {"/truncation", "/padding", "/model/dropout", "/model/unk_token", "/model/continuing_subword_prefix",
          "/model/end_of_word_suffix", "/model/byte_fallback", "/model/ignore_merges"})
      DFIN_TRY_VOID(ExpectOff(off));
    return {};
  }

  // The bytes that a spelling stands for.
  std::optional<std::string> BytesOf(std::string_view spelling) const {
    std::string bytes;
    while (!spelling.empty()) {
      const CodePoint point = NextCodePoint(spelling);
      if (point.value >= characters_.size() || characters_[point.value] < 0) return std::nullopt;
      bytes.push_back(static_cast<char>(characters_[point.value]));
      spelling.remove_prefix(point.length);
    }
    return bytes;
  }

  Status TakeTokens() {
    const auto count = static_cast<int64_t>(document_.vocab.size());
    parts_.tokens.resize(document_.vocab.size());
    std::array<bool, 256> has = {};
    for (const auto& [spelling, id] : document_.vocab) {
      if (id >= count)
        return Fail(ErrorCode::kCorrupt, what_, ": model/vocab: expected ids from 0 to ", count - 1, ", got ", id);
      std::optional<std::string> bytes = BytesOf(spelling);
      if (!bytes || bytes->empty())
        return Fail(ErrorCode::kCorrupt, what_, ": model/vocab: token ", id, " is no spelling of bytes");
      std::string& token = parts_.tokens[static_cast<size_t>(id)];
      if (!token.empty()) return Fail(ErrorCode::kCorrupt, what_, ": model/vocab: id ", id, " is given twice");
      if (bytes->size() == 1) has[static_cast<unsigned char>((*bytes)[0])] = true;
      token = std::move(*bytes);
    }
    const auto missing = std::find(has.begin(), has.end(), false);
    if (missing == has.end()) return {};
    return Fail(ErrorCode::kCorrupt, what_, ": model/vocab: no token for the byte ", missing - has.begin());
  }

  Status TakeMerges() {
    for (const std::vector<std::string>& texts : document_.merges) {
      std::string left = texts.empty() ? "" : texts[0], right = texts.size() == 2 ? texts[1] : "";
      if (texts.size() == 1) {
        const size_t space = left.find(' ');
        if (space != std::string::npos) right = left.substr(space + 1);
        left = left.substr(0, space);
      }
      const auto a = document_.vocab.find(left), b = document_.vocab.find(right),
                 joined = document_.vocab.find(left + right);
      const auto end = document_.vocab.end();
      if (a == end || b == end || joined == end)
        return Fail(ErrorCode::kCorrupt, what_, ": model/merges: number ", parts_.merges.size(),
                    ": expected two tokens that join to a token, got \"", left.substr(0, 40), " ", right.substr(0, 40),
                    "\"");
      parts_.merges.push_back(
          {static_cast<TokenId>(a->second), static_cast<TokenId>(b->second), static_cast<TokenId>(joined->second)});
    }
    return {};
  }

  Status TakeAdded() {
    const auto count = static_cast<int64_t>(parts_.tokens.size());
    for (int64_t i = 0;; ++i) {
      const auto it = document_.settings.find(Cat("/added_tokens/", i, "/id"));
      if (it == document_.settings.end()) break;
      const bool fits = it->second.is_number_unsigned() && it->second.get<uint64_t>() < static_cast<uint64_t>(kMostIds);
      const int64_t id = fits ? it->second.get<int64_t>() : -1;
      if (id < count)
        return Fail(ErrorCode::kUnsupported, what_, ": added_tokens: number ", i, ": expected an id from ", count,
                    " to ", kMostIds - 1, ", got ", DumpJson(it->second).substr(0, 40));
      parts_.added.push_back(static_cast<TokenId>(id));
    }
    std::sort(parts_.added.begin(), parts_.added.end());
    const auto twice = std::adjacent_find(parts_.added.begin(), parts_.added.end());
    if (twice == parts_.added.end()) return {};
    return Fail(ErrorCode::kCorrupt, what_, ": added_tokens: id ", *twice, " is given twice");
  }

  const Document& document_;
  const std::string& what_;
  std::array<int, 0x180> characters_ = {};  // the byte that a character stands for, or -1
  ByteLevelParts parts_;
};

}  // namespace

Result<ByteLevelParts> ParseByteLevelFile(std::string_view json, const std::string& what) {
  Document document;
  Reader reader(document);
  if (!Json::sax_parse(json, &reader))
    return Fail(ErrorCode::kCorrupt, what, ": ", reader.fault().empty() ? "not valid JSON" : reader.fault());
  return Checker(document, what).Check();
}

}  // namespace deltafin
