#include "cache/prefetch_gate.h"

#include <gmock/gmock.h>

#include <random>

namespace deltafin {
namespace {

constexpr double kManyRecords = 1e9;

std::vector<ExpertGuess> Guesses(std::initializer_list<std::pair<int32_t, int32_t>> expert_and_kind) {
  std::vector<ExpertGuess> guesses;
  for (const auto& [expert, kind] : expert_and_kind) guesses.push_back({.expert = expert, .kind = kind});
  return guesses;
}

size_t Admitted(const std::vector<ExpertGuess>& guesses) {
  return static_cast<size_t>(std::count_if(guesses.begin(), guesses.end(), [](const auto& g) { return g.admitted; }));
}

TEST(PrefetchGate, AdmitsNothingBeforeItKnowsAnything) {
  PrefetchGate gate(2, 3);
  std::vector<ExpertGuess> guesses = Guesses({{1, 0}, {2, 1}, {3, 2}});
  gate.Admit(0, guesses, kManyRecords);
  EXPECT_EQ(Admitted(guesses), 0u);
}

TEST(PrefetchGate, LearnsFromGuessesThatItDidNotAdmit) {
  PrefetchGate gate(2, 3);
  for (int step = 0; step < 10; ++step) {
    std::vector<ExpertGuess> guesses = Guesses({{1, 0}, {2, 1}});
    gate.Admit(1, guesses, kManyRecords);
    gate.Learn(1, guesses, std::vector<int32_t>{2, 7});
  }
  std::vector<ExpertGuess> guesses = Guesses({{1, 0}, {2, 1}});
  gate.Admit(1, guesses, kManyRecords);
  EXPECT_EQ(guesses[0].expert, 2) << "the likelier first";
  EXPECT_TRUE(guesses[0].admitted);
  EXPECT_FALSE(guesses[1].admitted);
  guesses = Guesses({{2, 1}});
  gate.Admit(0, guesses, kManyRecords);
  EXPECT_FALSE(guesses[0].admitted) << "another layer";
}

TEST(PrefetchGate, WhatWasAdmittedStaysSoAndIsCountedOnce) {
  PrefetchGate gate(1, 2);
  for (int step = 0; step < 100; ++step) {
    std::vector<ExpertGuess> guesses = Guesses({{1, 0}, {2, 1}});
    gate.Admit(0, guesses, kManyRecords);
    gate.Learn(0, guesses, std::vector<int32_t>{1, 2});
  }
  const uint64_t before = gate.admitted();
  std::vector<ExpertGuess> guesses = Guesses({{1, 0}});
  gate.Admit(0, guesses, kManyRecords);
  guesses.push_back({.expert = 2, .kind = 1});
  gate.Admit(0, guesses, 0);  // no budget for another, and none needed for the first
  EXPECT_EQ(Admitted(guesses), 1u);
  gate.Admit(0, guesses, kManyRecords);
  EXPECT_EQ(Admitted(guesses), 2u);
  EXPECT_EQ(gate.admitted(), before + 2);
}

TEST(PrefetchGate, StopsWhenGuessesTurnBad) {
  PrefetchGate gate(1, 1);
  const auto step = [&](bool comes_true) {
    std::vector<ExpertGuess> guesses = Guesses({{1, 0}});
    gate.Admit(0, guesses, kManyRecords);
    gate.Learn(0, guesses, std::vector<int32_t>{comes_true ? 1 : 2});
    return guesses[0].admitted;
  };
  for (int i = 0; i < 1000; ++i) step(true);
  ASSERT_TRUE(step(true));
  int admitted = 0;
  for (int i = 0; i < 1000; ++i) admitted += step(false) ? 1 : 0;
  EXPECT_LT(admitted, 250) << "old successes fade";
}

// Kinds that come true two times in three, at a rate of reads that leaves little to waste.
TEST(PrefetchGate, WastesNoMoreThanItsShareOfAllReads) {
  PrefetchGate gate(1, 16);
  std::mt19937 random(5);
  double reads = 0;
  for (int step = 0; step < 5000; ++step) {
    std::vector<ExpertGuess> guesses;
    std::vector<int32_t> wanted;
    for (int32_t e = 0; e < 16; ++e) {
      guesses.push_back({.expert = e, .kind = e});
      if (random() % 3 != 0) wanted.push_back(e);
    }
    gate.Admit(0, guesses, reads);
    gate.Learn(0, guesses, wanted);
    const auto right = static_cast<size_t>(16);
    reads += static_cast<double>(right);
  }
  EXPECT_GT(gate.admitted(), 1000u);
  EXPECT_LE(static_cast<double>(gate.wrong()), 0.05 * reads);
  EXPECT_GE(static_cast<double>(gate.wrong()), 0.03 * reads) << "and uses it";
}

TEST(PrefetchGate, AForgottenGuessIsNoRiskAnyMore) {
  PrefetchGate gate(1, 1);
  for (int i = 0; i < 20; ++i) {
    std::vector<ExpertGuess> guesses = Guesses({{1, 0}});
    gate.Admit(0, guesses, 0);
    gate.Learn(0, guesses, std::vector<int32_t>{i % 10 == 9 ? 2 : 1});
  }
  // Room for the risk of one guess, not of two.
  for (int i = 0; i < 100; ++i) {
    std::vector<ExpertGuess> guesses = Guesses({{1, 0}});
    gate.Admit(0, guesses, 8);
    ASSERT_TRUE(guesses[0].admitted) << i;
    gate.Forget(guesses);
  }
}

}  // namespace
}  // namespace deltafin
