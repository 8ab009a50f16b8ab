// runs: whole runs of a simulation: a prompt, plain decoding, decoding with drafts.
//
// Functions on a Simulation; the clock and the cache go on from run to run.
#pragma once

#include <cstdint>
#include <vector>

#include "simulate/simulation.h"

namespace deltafin::simulate {

// Drafts that are checked in one step: how many (by chance, weights by number), and how likely each is to be right when
// those before it are.
struct DraftHabits {
  std::vector<double> weights;  // [most drafts + 1], of no drafts first; empty: nothing is drafted
  double chance = 0;
  // Tokens of a step are counted as what they are on average, instead of drawing which drafts are right.
  bool on_average = false;

  double mean_drafts() const;
  double mean_right() const;
};
// The chance for which `part` of all drafts are right.
double ChanceFor(const DraftHabits& habits, double part);
// The habits of a drafter whose drafts are right with this chance: always the number that pays best where reading n
// rows costs n^growth. On average.
DraftHabits BestHabits(double chance, double growth, int64_t most);

struct DecodeRun {
  double tokens = 0;
  Totals totals;
  double tokens_per_second() const { return totals.seconds > 0 ? tokens / totals.seconds : 0; }
  double bytes_per_token() const { return (totals.expert_bytes + totals.dense_bytes) / tokens; }
};

// All rows of the prompt, in the passes that the engine makes of it (at most `chunk` rows each). Nothing is
// guessed: what the published engine reads ahead in prompts is in EngineModel::prompt_waste.
Totals RunPrompt(Simulation& simulation, const EngineModel& engine, int64_t rows, int64_t chunk);
// At least `tokens` tokens.
DecodeRun RunDecode(Simulation& simulation, int64_t tokens, const DraftHabits& drafts, uint64_t seed);

}  // namespace deltafin::simulate
