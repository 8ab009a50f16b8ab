#include "text/rank_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deltafin::test {
namespace {

using testing::HasSubstr;

std::string Base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k)
      bits = (bits << 8) | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) text += i + k > bytes.size() ? '=' : kDigits[(bits >> (18 - 6 * k)) & 63];
  }
  return text;
}

// The 256 single bytes, ranks in numeric order, each line ended by `line_end`.
std::string SingleBytes(std::string_view line_end = "\n") {
  std::string file;
  for (int byte = 0; byte < 256; ++byte) {
    file += Base64(std::string(1, static_cast<char>(byte))) + " " + std::to_string(byte);
    file += line_end;
  }
  return file;
}

void ExpectRefused(const std::string& file, const std::string& reason) {
  const auto tokens = ParseRankFile(file);
  ASSERT_FALSE(tokens.has_value()) << reason;
  EXPECT_EQ(tokens.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(tokens.error().message(), HasSubstr(reason));
}

TEST(RankFile, TokensAreTheDecodedLines) {
  const auto tokens = ParseRankFile(SingleBytes() + "6Ieq5Li75oCn 256\nIQ0K 257\n");
  ASSERT_TRUE(tokens.has_value()) << tokens.error().message();
  ASSERT_EQ(tokens->size(), 258u);
  EXPECT_EQ((*tokens)[0x21], "!");
  EXPECT_EQ((*tokens)[256], "自主性");
  EXPECT_EQ((*tokens)[257], "!\r\n");
}

TEST(RankFile, CrlfEmptyLinesAndAMissingFinalLineBreakAreAccepted) {
  std::string file = "\r\n\n" + SingleBytes("\r\n") + "\n\n";
  EXPECT_TRUE(ParseRankFile(file).has_value());
  file = SingleBytes();
  file.pop_back();
  EXPECT_TRUE(ParseRankFile(file).has_value());
}

TEST(RankFile, BrokenLinesAreRefusedWithTheirNumber) {
  ExpectRefused(SingleBytes() + "YWI=\n", "line 257: expected base64, a space and a rank");
  ExpectRefused(SingleBytes() + "YW! 256\n", "line 257: the token is not valid base64");
  ExpectRefused(SingleBytes() + "YWI 256\n", "line 257: the token is not valid base64");
  ExpectRefused(SingleBytes() + "YWJ= 256\n", "not valid base64");  // bits beyond the last byte
  ExpectRefused(SingleBytes() + "Y=I= 256\n", "not valid base64");
  ExpectRefused(SingleBytes() + "==== 256\n", "not valid base64");
  ExpectRefused(SingleBytes() + " 256\n", "line 257: the token is empty");
  ExpectRefused(SingleBytes() + "YWI= \n", "line 257: the rank is not a decimal number");
  ExpectRefused(SingleBytes() + "YWI= -1\n", "the rank is not a decimal number");
  ExpectRefused(SingleBytes() + "YWI= 256 \n", "the rank is not a decimal number");
  ExpectRefused(SingleBytes() + "YWI= 99999999999999999999\n", "the rank is not a decimal number");
}

TEST(RankFile, RepeatedAndMissingEntriesAreRefused) {
  ExpectRefused(SingleBytes() + "IQ== 256\n", "have the same token");
  ExpectRefused(SingleBytes() + "YWI= 255\n", "rank 255 occurs twice");
  ExpectRefused(SingleBytes() + "YWI= 257\n", "without gaps");
  ExpectRefused("YWI= 0\n", "single byte");
  ExpectRefused("", "single byte");
}

}  // namespace
}  // namespace deltafin::test
