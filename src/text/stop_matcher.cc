#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace deltafin {

namespace {

size_t Advance(const std::string& stop, const std::vector<size_t>& fallback, size_t length, char c) {
  while (length > 0 && stop[length] != c) length = fallback[length];
  return stop[length] == c ? length + 1 : 0;
}

}  // namespace

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    if (stop.empty()) continue;
    Automaton automaton{stop, std::vector<size_t>(stop.size() + 1, 0), 0};
    for (size_t n = 2; n <= stop.size(); ++n) {
      automaton.fallback[n] = Advance(stop, automaton.fallback, automaton.fallback[n - 1], stop[n - 1]);
    }
    automata_.push_back(std::move(automaton));
  }
}

std::string StopMatcher::Append(std::string_view text) {
  if (matched_) return "";
  for (const char c : text) {
    held_.push_back(c);
    size_t stop_length = 0;
    for (Automaton& automaton : automata_) {
      automaton.length = Advance(automaton.stop, automaton.fallback, automaton.length, c);
      if (automaton.length == automaton.stop.size()) stop_length = std::max(stop_length, automaton.length);
    }
    if (stop_length == 0) continue;
    matched_ = true;
    matched_stop_ = held_.substr(held_.size() - stop_length);
    held_.resize(held_.size() - stop_length);
    return std::exchange(held_, "");
  }
  size_t keep = 0;
  for (const Automaton& automaton : automata_) keep = std::max(keep, automaton.length);
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return certain;
}

std::string StopMatcher::Finish() { return std::exchange(held_, ""); }

}  // namespace deltafin
