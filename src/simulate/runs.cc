#include "simulate/runs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "synth/random.h"

namespace deltafin::simulate {
namespace {

double Uniform(Random& random) { return static_cast<double>(random.Next() >> 11) * 0x1p-53; }

// Of `drafts` drafts, how many are right on average.
double ExpectedRight(double chance, size_t drafts) {
  double sum = 0, all = 1;
  for (size_t j = 0; j < drafts; ++j) sum += (all *= chance);
  return sum;
}

double Sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

}  // namespace

double DraftHabits::mean_drafts() const {
  double sum = 0;
  for (size_t n = 0; n < weights.size(); ++n) sum += weights[n] * static_cast<double>(n);
  return weights.empty() ? 0 : sum / Sum(weights);
}

double DraftHabits::mean_right() const {
  double sum = 0;
  for (size_t n = 0; n < weights.size(); ++n) sum += weights[n] * ExpectedRight(chance, n);
  return weights.empty() ? 0 : sum / Sum(weights);
}

double ChanceFor(const DraftHabits& habits, double part) {
  DraftHabits tried = habits;
  double low = 0, high = 1;
  for (int i = 0; i < 60; ++i) {
    tried.chance = (low + high) / 2;
    (tried.mean_right() < part * tried.mean_drafts() ? low : high) = tried.chance;
  }
  return low;
}

DraftHabits BestHabits(double chance, double growth, int64_t most) {
  size_t best = 0;
  double best_rate = 1;
  for (size_t n = 1; n <= static_cast<size_t>(std::max<int64_t>(0, most)); ++n) {
    const double rate = (1 + ExpectedRight(chance, n)) / std::pow(static_cast<double>(n + 1), growth);
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = n;
  }
  DraftHabits habits{.weights = std::vector<double>(best + 1, 0), .chance = chance, .on_average = true};
  habits.weights[best] = 1;
  return habits;
}

Totals RunPrompt(Simulation& simulation, const EngineModel& engine, int64_t rows, int64_t chunk) {
  const Totals before = simulation.totals();
  const int64_t most = engine.prompt_rows > 0 ? std::min(engine.prompt_rows, chunk) : chunk;
  for (int64_t left = rows; left > 0; left -= most)
    simulation.Step(std::min(left, most), engine.prompt_waste, /*guessing=*/false);
  return simulation.totals() - before;
}

DecodeRun RunDecode(Simulation& simulation, int64_t tokens, const DraftHabits& drafts, uint64_t seed) {
  const Totals before = simulation.totals();
  Random random(MixSeed(seed, "drafts"));
  DecodeRun run;
  const double all = Sum(drafts.weights);
  while (run.tokens < static_cast<double>(tokens)) {
    size_t width = 0;
    if (!drafts.weights.empty()) {
      double at = Uniform(random) * all;
      while (width + 1 < drafts.weights.size() && (at -= drafts.weights[width]) >= 0) ++width;
    }
    simulation.Step(static_cast<int64_t>(width) + 1);
    run.tokens += 1;
    if (drafts.on_average) {
      run.tokens += ExpectedRight(drafts.chance, width);
      continue;
    }
    for (size_t j = 0; j < width && Uniform(random) < drafts.chance; ++j) run.tokens += 1;
  }
  run.totals = simulation.totals() - before;
  return run;
}

}  // namespace deltafin::simulate
