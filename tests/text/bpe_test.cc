#include "text/bpe.h"

#include <gtest/gtest.h>

#include "text/text_test_support.h"

namespace deltafin::test {
namespace {

// The rule as it is defined, with a scan for every merge.
std::vector<TokenId> MergeByScanning(const TokenTable& ranks, std::string_view piece) {
  std::vector<std::string> symbols;
  for (const char c : piece) symbols.emplace_back(1, c);
  while (true) {
    int32_t best = INT32_MAX;
    size_t where = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const int32_t rank = ranks.Find(symbols[i] + symbols[i + 1]);
      if (rank == TokenTable::kNone || rank >= best) continue;
      best = rank;
      where = i;
    }
    if (best == INT32_MAX) break;
    symbols[where] += symbols[where + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
  std::vector<TokenId> ids;
  for (const std::string& symbol : symbols) ids.push_back(ranks.Find(symbol));
  return ids;
}

std::vector<TokenId> Merge(const TokenTable& ranks, std::string_view piece) {
  std::vector<TokenId> ids;
  AppendBytePairs(ranks, piece, &ids);
  return ids;
}

TokenTable TableWith(const std::vector<std::string>& words) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), words.begin(), words.end());
  return TokenTable(tokens);
}

TEST(BytePairs, LowestRankMergesFirstAndLeftmostOnTies) {
  const TokenTable ranks = TableWith({"bc", "ab", "aa"});
  EXPECT_EQ(Merge(ranks, "abc"), (std::vector<TokenId>{'a', 256}));
  EXPECT_EQ(Merge(ranks, "abd"), (std::vector<TokenId>{257, 'd'}));
  EXPECT_EQ(Merge(ranks, "aaa"), (std::vector<TokenId>{258, 'a'}));
  EXPECT_EQ(Merge(ranks, ""), std::vector<TokenId>{});
}

TEST(BytePairs, AgreesWithScanningForEveryMerge) {
  const TokenTable ranks =
      TableWith({"ab", "ba", "aab", "bb", "abab", "bbb", "cab", "ca", "bc", "abcab", "aa", "aaaa", "bcb"});
  Random random(3);
  for (int round = 0; round < 3'000; ++round) {
    std::string piece;
    for (unsigned n = random.Below(30); n > 0; --n) piece.push_back(static_cast<char>('a' + random.Below(3)));
    ASSERT_EQ(Merge(ranks, piece), MergeByScanning(ranks, piece)) << piece;
  }
}

TEST(BytePairs, ALongPieceIsNotQuadratic) {
  const TokenTable ranks = TableWith({"ab", "abab", "abababab"});
  std::string piece;
  for (int i = 0; i < 500'000; ++i) piece += "ab";
  EXPECT_EQ(Merge(ranks, piece), std::vector<TokenId>(125'000, 258));
}

}  // namespace
}  // namespace deltafin::test
