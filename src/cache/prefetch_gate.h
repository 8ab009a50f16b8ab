// PrefetchGate: which guesses about a layer's experts are worth a read, by how often guesses of their kind came true.
//
// A guess has a kind (who made it, and at which place of his list). For every layer and kind the gate keeps the share
// of guesses that the next batch of the layer wanted; it counts all of them, also those that it does not admit, so it
// knows before it pays. A guess is admitted when its chance is at least kLeastChance and what it may waste fits into a
// budget: over the whole run about kMostWaste of all records read, at most, are wrong guesses. A wrong guess that is
// cancelled in time costs less than a record; the budget does not count on it. Never changes a result, only reads.
// Thread rule: engine thread only. No allocation after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deltafin {

struct ExpertGuess {
  int32_t expert = 0;
  int32_t kind = 0;
  float chance = 0;       // filled in by Admit
  bool admitted = false;  // the same
};

class PrefetchGate {
 public:
  static constexpr double kLeastChance = 0.6;
  static constexpr double kMostWaste = 0.04;

  PrefetchGate(int64_t layers, int64_t kinds);

  // Orders guesses for `layer` by their chance and marks those worth a read; those admitted before stay so.
  // `records_read`: experts read so far, by whomever.
  void Admit(int32_t layer, std::span<ExpertGuess> guesses, double records_read);
  // What the layer wanted (ascending), and the guesses as Admit left them.
  void Learn(int32_t layer, std::span<const ExpertGuess> guesses, std::span<const int32_t> wanted);
  // Guesses that will not be answered: the step was given up.
  void Forget(std::span<const ExpertGuess> guesses);

  // Chance of a guess of this kind to come true; low as long as little is known.
  double Chance(int32_t layer, int32_t kind) const;
  uint64_t admitted() const { return admitted_; }
  uint64_t wrong() const { return wrong_; }  // of those

 private:
  struct Tally {
    float made = 0;
    float right = 0;
  };
  size_t IndexOf(int32_t layer, int32_t kind) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(kinds_) + static_cast<size_t>(kind);
  }

  const int64_t kinds_;
  std::vector<Tally> tallies_;  // [layers, kinds]
  double at_risk_ = 0;          // records that guesses without an answer are expected to waste
  uint64_t admitted_ = 0;
  uint64_t wrong_ = 0;
};

}  // namespace deltafin
