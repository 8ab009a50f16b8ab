// stop_matcher.h: ends a stream of text at the first of several stop strings.
//
// Text that could still become a stop string is held back. How the text is cut into calls changes nothing: the stream
// ends where a stop string is first complete, the longest one if several end there, and the stop string itself is not
// emitted. Linear in text times number of stop strings. Ownership: a value. Thread rule: one thread at a time.
//
//   StopMatcher matcher({"\n\n", "END"});
//   Print(matcher.Append(piece));
//   if (matcher.matched()) stop generating; else at the end Print(matcher.Finish());
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace deltafin {

class StopMatcher {
 public:
  // Empty stop strings are ignored. `stops` and all text must be valid UTF-8 for the pieces to be.
  explicit StopMatcher(const std::vector<std::string>& stops);

  // The text that is certain to be before any stop string; may be empty. Empty after a match.
  std::string Append(std::string_view text);

  // What was held back, when the stream ended without a match.
  std::string Finish();

  bool matched() const { return matched_; }
  // The stop string that ended the stream; "" when none did.
  const std::string& matched_stop() const { return matched_stop_; }

 private:
  // Knuth-Morris-Pratt: `length` bytes of the stop string match the end of the text so far.
  struct Automaton {
    std::string stop;
    std::vector<size_t> fallback;  // longest proper border of each prefix, by prefix length
    size_t length = 0;
  };

  std::vector<Automaton> automata_;
  std::string held_;
  bool matched_ = false;
  std::string matched_stop_;
};

}  // namespace deltafin
