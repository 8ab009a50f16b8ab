#include "text/rank_file.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "text/token_table.h"

namespace deltafin {

namespace {

int Base64Digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

// RFC 4648 with padding; bits that no byte uses must be zero, so that each token has one spelling.
std::optional<std::string> DecodeBase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text.substr(0, text.size() - padding)) {
    const int digit = Base64Digit(c);
    if (digit < 0) return std::nullopt;
    bits = (bits << 6) | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>((bits >> count) & 0xFF));
    bits &= (1u << count) - 1;
  }
  if (bits != 0) return std::nullopt;
  return bytes;
}

struct RankLine {
  std::string token;
  uint32_t rank = 0;
};

Result<RankLine> ParseLine(std::string_view line, size_t number) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos)
    return Fail(ErrorCode::kCorrupt, "line ", number, ": expected base64, a space and a rank, got no space");
  std::optional<std::string> token = DecodeBase64(line.substr(0, space));
  if (!token) return Fail(ErrorCode::kCorrupt, "line ", number, ": the token is not valid base64");
  if (token->empty()) return Fail(ErrorCode::kCorrupt, "line ", number, ": the token is empty");
  RankLine result{std::move(*token), 0};
  const std::string_view digits = line.substr(space + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), result.rank);
  if (error != std::errc() || end != digits.data() + digits.size())
    return Fail(ErrorCode::kCorrupt, "line ", number, ": the rank is not a decimal number");
  return result;
}

Status CheckSingleBytes(const TokenTable& table) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (table.Find(std::string_view(&c, 1)) == TokenTable::kNone)
      return Fail(ErrorCode::kCorrupt, "no token for the single byte ", byte, ": expected all 256");
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> ParseRankFile(std::string_view file) {
  std::vector<RankLine> lines;
  for (size_t number = 1; !file.empty(); ++number) {
    const size_t end = std::min(file.find('\n'), file.size());
    std::string_view line = file.substr(0, end);
    file.remove_prefix(std::min(end + 1, file.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    DFIN_TRY(RankLine parsed, ParseLine(line, number));
    lines.push_back(std::move(parsed));
  }
  std::vector<std::string> tokens(lines.size());
  for (RankLine& line : lines) {
    if (line.rank >= tokens.size())
      return Fail(ErrorCode::kCorrupt, "rank ", line.rank, ": expected ranks 0 to ", tokens.size(),
                  " (exclusive) without gaps");
    if (!tokens[line.rank].empty()) return Fail(ErrorCode::kCorrupt, "rank ", line.rank, " occurs twice");
    tokens[line.rank] = std::move(line.token);
  }
  const TokenTable table(tokens);
  const auto [earlier, later] = table.duplicate();
  if (earlier != TokenTable::kNone)
    return Fail(ErrorCode::kCorrupt, "ranks ", earlier, " and ", later, " have the same token");
  DFIN_TRY_VOID(CheckSingleBytes(table));
  return tokens;
}

}  // namespace deltafin
