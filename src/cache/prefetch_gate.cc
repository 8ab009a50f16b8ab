#include "cache/prefetch_gate.h"

#include <algorithm>

namespace deltafin {
namespace {

// Before anything is known, a guess of any kind counts as right once in four.
constexpr float kPriorMade = 4;
constexpr float kPriorRight = 1;
// Tallies are halved here, so that the last few hundred tokens decide.
constexpr float kMostMade = 256;

}  // namespace

PrefetchGate::PrefetchGate(int64_t layers, int64_t kinds)
    : kinds_(kinds), tallies_(static_cast<size_t>(layers * kinds)) {}

double PrefetchGate::Chance(int32_t layer, int32_t kind) const {
  const Tally& tally = tallies_[IndexOf(layer, kind)];
  return (tally.right + kPriorRight) / (tally.made + kPriorMade);
}

void PrefetchGate::Admit(int32_t layer, std::span<ExpertGuess> guesses, double records_read) {
  for (ExpertGuess& guess : guesses)
    if (!guess.admitted) guess.chance = static_cast<float>(Chance(layer, guess.kind));
  std::sort(guesses.begin(), guesses.end(), [](const ExpertGuess& a, const ExpertGuess& b) {
    return a.chance != b.chance ? a.chance > b.chance : a.expert < b.expert;
  });
  const double budget = kMostWaste * records_read - static_cast<double>(wrong_);
  for (ExpertGuess& guess : guesses) {
    if (guess.admitted) continue;
    const double risk = 1.0 - static_cast<double>(guess.chance);
    guess.admitted = static_cast<double>(guess.chance) >= kLeastChance && at_risk_ + risk <= budget;
    if (!guess.admitted) continue;
    at_risk_ += risk;
    ++admitted_;
  }
}

void PrefetchGate::Learn(int32_t layer, std::span<const ExpertGuess> guesses, std::span<const int32_t> wanted) {
  Forget(guesses);
  for (const ExpertGuess& guess : guesses) {
    const bool right = std::binary_search(wanted.begin(), wanted.end(), guess.expert);
    if (guess.admitted && !right) ++wrong_;
    Tally& tally = tallies_[IndexOf(layer, guess.kind)];
    if (tally.made >= kMostMade) tally = {tally.made / 2, tally.right / 2};
    tally.made += 1;
    tally.right += right ? 1 : 0;
  }
}

void PrefetchGate::Forget(std::span<const ExpertGuess> guesses) {
  for (const ExpertGuess& guess : guesses)
    if (guess.admitted) at_risk_ = std::max(0.0, at_risk_ - (1.0 - static_cast<double>(guess.chance)));
}

}  // namespace deltafin
