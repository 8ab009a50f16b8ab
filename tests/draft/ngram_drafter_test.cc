// What followed the last few tokens the last time is proposed; nothing is proposed that the text does not hold.
#include "draft/ngram_drafter.h"

#include <gtest/gtest.h>

#include <random>

namespace deltafin {
namespace {

struct Drafted {
  Proposal proposal;
  std::vector<TokenId> tokens;
};

Drafted Propose(NgramDrafter& drafter, const std::vector<TokenId>& history, size_t most = 7) {
  Drafted drafted;
  drafted.tokens.resize(most, -5);
  Result<Proposal> made = drafter.Propose(history, drafted.tokens);
  EXPECT_TRUE(made);
  drafted.proposal = *made;
  drafted.tokens.resize(static_cast<size_t>(made->count));
  return drafted;
}

std::unique_ptr<NgramDrafter> Make(NgramOptions options = {.capacity = 200, .stop_tokens = {}, .first_special = 0}) {
  return std::move(*NgramDrafter::Create(std::move(options)));
}

TEST(Ngram, ProposesWhatFollowedTheLongestRunThatWasSeen) {
  const auto drafter = Make();
  // 1 2 3 was followed by 4 5; 2 3 alone, later, by 9.
  const Drafted d = Propose(*drafter, {1, 2, 3, 4, 5, 8, 2, 3, 9, 1, 2, 3});
  EXPECT_EQ(d.tokens, (std::vector<TokenId>{4, 5, 8, 2, 3, 9, 1}));
  EXPECT_EQ(d.proposal.kind, 3 - NgramIndex::kShortest);
}

TEST(Ngram, OfEquallyLongRunsTheLastOneCounts) {
  const auto drafter = Make();
  EXPECT_EQ(Propose(*drafter, {1, 2, 7, 1, 2, 8, 5, 1, 2}, 2).tokens, (std::vector<TokenId>{8, 5}));
}

TEST(Ngram, SaysNothingWithoutARunThatWasSeen) {
  const auto drafter = Make();
  EXPECT_EQ(Propose(*drafter, {}).proposal.count, 0);
  EXPECT_EQ(Propose(*drafter, {4}).proposal.count, 0);
  EXPECT_EQ(Propose(*drafter, {4, 4}).proposal.count, 0) << "the run itself is not a place where it was seen";
  EXPECT_EQ(Propose(*drafter, {1, 2, 3, 1, 4, 2}).proposal.count, 0) << "single tokens are no run";
}

TEST(Ngram, PeriodicTextIsContinuedBeyondItsEnd) {
  const auto drafter = Make();
  EXPECT_EQ(Propose(*drafter, {1, 2, 1, 2, 1, 2}).tokens, (std::vector<TokenId>{1, 2, 1, 2, 1, 2, 1}));
  EXPECT_EQ(Propose(*drafter, {5, 5, 5}).tokens, (std::vector<TokenId>(7, 5)));
}

TEST(Ngram, AShorterProposalIsTheBeginningOfALongerOne) {
  const auto drafter = Make();
  const std::vector<TokenId> history = {1, 2, 3, 4, 5, 1, 2, 3};
  const Drafted longest = Propose(*drafter, history);
  for (size_t most = 0; most <= 7; ++most) {
    const Drafted d = Propose(*drafter, history, most);
    EXPECT_TRUE(std::equal(d.tokens.begin(), d.tokens.end(), longest.tokens.begin())) << most;
    EXPECT_EQ(d.tokens.size(), most);
  }
}

TEST(Ngram, StopsBehindAnEndOfTheAnswerAndBehindMarkersOfAChat) {
  const auto drafter = Make({.capacity = 100, .stop_tokens = {4}, .first_special = 50});
  EXPECT_EQ(Propose(*drafter, {1, 2, 3, 4, 5, 1, 2, 3}).tokens, (std::vector<TokenId>{4}));
  EXPECT_EQ(Propose(*drafter, {1, 2, 3, 7, 51, 5, 1, 2, 3}).tokens, (std::vector<TokenId>{7, 51}));
}

TEST(Ngram, AnotherConversationLeavesNothingOfTheLastOne) {
  const auto drafter = Make();
  EXPECT_EQ(Propose(*drafter, {1, 2, 3, 4, 1, 2}).proposal.count, 7);
  EXPECT_EQ(Propose(*drafter, {8, 1, 2}).proposal.count, 0);
  EXPECT_EQ(Propose(*drafter, {8, 1, 2, 8, 1}, 1).tokens, (std::vector<TokenId>{2}));
}

TEST(Ngram, ATextThatIsTooLongIsNotDraftedAndAShorterOneIsAgain) {
  const auto drafter = Make({.capacity = 8, .stop_tokens = {}, .first_special = 0});
  const std::vector<TokenId> at_capacity = {1, 2, 1, 2, 1, 2, 1, 2};
  std::vector<TokenId> above = at_capacity;
  above.push_back(1);
  EXPECT_EQ(Propose(*drafter, at_capacity).proposal.count, 7);
  EXPECT_EQ(Propose(*drafter, above).proposal.count, 0);
  EXPECT_EQ(Propose(*drafter, at_capacity).proposal.count, 7);
}

// Random texts over few letters, against a search through the whole text.
TEST(Ngram, FindsWhatASearchThroughTheTextFinds) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const auto drafter = Make();
    std::vector<TokenId> text;
    for (int n = 0; n < 150; ++n) {
      text.push_back(static_cast<TokenId>(random() % (2 + static_cast<uint32_t>(round) % 9)));
      int64_t expected_length = 0, expected_next = 0;
      const auto end = static_cast<int64_t>(text.size());
      for (int64_t length = std::min<int64_t>(6, end); length >= 2 && expected_length == 0; --length)
        for (int64_t at = end - length - 1; at >= 0 && expected_length == 0; --at)
          if (std::equal(text.begin() + at, text.begin() + at + length, text.end() - length)) {
            expected_length = length;
            expected_next = at + length;
          }
      const Drafted d = Propose(*drafter, text, 1);
      ASSERT_EQ(d.proposal.count, expected_length == 0 ? 0 : 1);
      if (expected_length == 0) continue;
      ASSERT_EQ(d.proposal.kind, expected_length - 2);
      ASSERT_EQ(d.tokens[0], text[static_cast<size_t>(expected_next)]);
    }
  }
}

}  // namespace
}  // namespace deltafin
