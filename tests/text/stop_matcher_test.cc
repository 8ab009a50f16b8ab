#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include "text/text_test_support.h"

namespace deltafin::test {
namespace {

TEST(StopMatcher, HoldsBackWhatMayBecomeAStopString) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.Append("the E"), "the ");
  EXPECT_EQ(matcher.Append("NT E"), "ENT ");
  EXPECT_EQ(matcher.Append("N"), "");
  EXPECT_FALSE(matcher.matched());
  EXPECT_EQ(matcher.Append("Dafter"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.Append("more"), "");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcher, WhatWasHeldBackComesOutAtTheEnd) {
  StopMatcher matcher({"\n\n", "stop"});
  EXPECT_EQ(matcher.Append("a\n"), "a");
  EXPECT_EQ(matcher.Finish(), "\n");
}

TEST(StopMatcher, WithoutStopStringsNothingIsHeldBack) {
  for (const std::vector<std::string>& stops : {std::vector<std::string>{}, std::vector<std::string>{""}}) {
    StopMatcher matcher(stops);
    EXPECT_EQ(matcher.Append("abc"), "abc");
    EXPECT_FALSE(matcher.matched());
  }
}

struct Stopped {
  std::string text;
  bool matched = false;
};

// The definition: the first place where a stop string ends, the longest of those that end there.
Stopped StopBySearching(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

TEST(StopMatcher, AnyCutsGiveTheSameEnd) {
  Random random(13);
  const auto random_text = [&random](unsigned length) {
    std::string text;
    for (; length > 0; --length) text.push_back(static_cast<char>('a' + random.Below(2)));
    return text;
  };
  for (int round = 0; round < 5'000; ++round) {
    std::vector<std::string> stops;
    for (unsigned n = 1 + random.Below(3); n > 0; --n) stops.push_back(random_text(1 + random.Below(7)));
    const std::string text = random_text(random.Below(24));
    StopMatcher matcher(stops);
    std::string got;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random.Below(4);
      got += matcher.Append(std::string_view(text).substr(at, length));
      at += length;
    }
    got += matcher.Finish();
    const Stopped expected = StopBySearching(stops, text);
    ASSERT_EQ(got, expected.text);
    ASSERT_EQ(matcher.matched(), expected.matched);
  }
}

}  // namespace
}  // namespace deltafin::test
