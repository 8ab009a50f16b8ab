// draft_economics: what a step of several rows costs, how often drafted tokens are right, and how many are worth
// checking.
//
// StepCosts: time of a step by its rows, as a multiple of a plain step's. Until it was measured, rows^0.69: experts of
// adjacent rows overlap (published logs of Kimi K3 on several drives). DraftRecord: of one drafter and one kind of
// evidence, by position: how often a token was right when those before it were. Both forget: what was long ago counts
// little. BestDrafts: the most tokens for the time. Pure arithmetic on what it is told; value types.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "draft/drafter.h"

namespace deltafin {

using DraftChances = std::array<double, kMostDrafts>;

class StepCosts {
 public:
  // Of a step, to each of its rows: rows that share nothing cost 1; what is above is a stall.
  static constexpr double kMostRatio = 1.25;

  // A step of several rows that takes so many times what is known is believed when the next of as many rows does too:
  // one alone is a stall.
  static constexpr double kDoubtful = 1.5;
  static constexpr uint64_t kFirstPlain = 3;  // plain steps until what one takes is well known
  enum class Learned : uint8_t { kYes, kDoubted, kConfirmed };

  Learned Record(int64_t rows, double seconds);
  // A part of what was learned about several rows is given up for what is usual.
  void Forget();

  bool known() const { return counts_[1] > 0; }  // a plain step was measured
  double plain_seconds() const { return plain_; }
  // Of a step with 1 .. kMostDrafts + 1 rows; never less with more rows.
  double Ratio(int64_t rows) const;
  uint64_t count(int64_t rows) const { return counts_[static_cast<size_t>(rows)]; }

 private:
  std::array<double, kMostDrafts + 2> ratios_ = {};  // by rows
  std::array<uint64_t, kMostDrafts + 2> counts_ = {};
  std::array<bool, kMostDrafts + 2> doubted_ = {};  // the last step with so many rows
  double plain_ = 0;
  int64_t since_plain_ = 0;  // steps of several rows
};

class DraftRecord {
 public:
  // Of the first `tried` tokens of a proposal the first `right` were right, and the next one, if any, was not.
  void Record(const Proposal& proposal, int64_t tried, int64_t right);
  // The chance that token j is right when those before it are.
  DraftChances Chances(std::span<const float, kMostDrafts> belief) const;
  // Proposals that were compared, old ones counting less.
  double proposals() const { return proposals_; }

 private:
  // By position, counting old ones less: tokens that were right, and how many were believed to be.
  DraftChances right_ = {}, believed_ = {};
  double proposals_ = 0;
};

struct DraftChoice {
  int64_t drafts = 0;
  double rate = 1;  // tokens in the time of a plain step
};

// Of 0 to `most` drafts the number that gives the most tokens for the time. `overhead`: of proposing, in plain steps;
// it is spent already, and counts for every number but 0. `worst_loss`: numbers that could lose more are left out.
DraftChoice BestDrafts(const StepCosts& costs, const DraftChances& chances, int64_t most, double overhead,
                       double worst_loss);

}  // namespace deltafin
