#include "draft/draft_economics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace deltafin {
namespace {

constexpr double kUsualExponent = 0.69;
// Least weights of a new measurement: the mean is over the last few.
constexpr double kPlainWeight = 0.2, kRatioWeight = 0.25;
// After so many steps of several rows what was known of a plain one is old: caches have filled meanwhile.
constexpr int64_t kLongSincePlain = 8;
constexpr double kLateWeight = 0.5;
// A plain step that takes longer than this times the usual is a drive that stalled, not a cost to learn.
constexpr double kOutlier = 4;
// ... and one alone that takes longer than this is not believed at all.
constexpr double kDoubtfulPlain = 2;
constexpr double kRecordDecay = 0.9;
// Nothing is ever certain.
constexpr double kBestChance = 0.98;

double Usual(int64_t rows, int64_t from_rows) {
  return std::pow(static_cast<double>(rows) / static_cast<double>(from_rows), kUsualExponent);
}

}  // namespace

StepCosts::Learned StepCosts::Record(int64_t rows, double seconds) {
  DFIN_CHECK(rows >= 1 && rows <= kMostDrafts + 1, "a step has 1 to kMostDrafts + 1 rows");
  const auto r = static_cast<size_t>(rows);
  const auto count = static_cast<double>(counts_[r]);
  Learned learned = Learned::kYes;
  if (rows == 1) {
    const int64_t since_plain_before = std::exchange(since_plain_, 0);
    if (counts_[1] > 0 && seconds > kDoubtfulPlain * plain_ && !doubted_[1]) {
      doubted_[1] = true;
      return Learned::kDoubted;
    }
    doubted_[1] = false;
    if (counts_[1] > 0) seconds = std::min(seconds, kOutlier * plain_);
    double weight = std::max(since_plain_before >= kLongSincePlain ? kLateWeight : kPlainWeight, 1 / (count + 1));
    // Of the first few, those may have stalled that took much longer.
    if (counts_[1] <= kFirstPlain && seconds * kDoubtfulPlain < plain_) weight = 1;
    plain_ += (seconds - plain_) * weight;
  } else {
    if (!known() || plain_ <= 0) return learned;
    ++since_plain_;
    const double ratio = std::min(seconds / plain_, kMostRatio * static_cast<double>(rows));
    const double before = Ratio(rows);
    const bool slow = ratio > kDoubtful * before;
    if (slow && !doubted_[r]) {
      doubted_[r] = true;
      return Learned::kDoubted;
    }
    if (slow) learned = Learned::kConfirmed;
    doubted_[r] = false;
    ratios_[r] = before + (ratio - before) * std::max(kRatioWeight, 1 / (count + 2));
  }
  ++counts_[r];
  return learned;
}

void StepCosts::Forget() {
  for (int64_t rows = 2; rows <= kMostDrafts + 1; ++rows) {
    const auto r = static_cast<size_t>(rows);
    ratios_[r] = (ratios_[r] + Usual(rows, 1)) / 2;
    counts_[r] /= 2;
  }
}

double StepCosts::Ratio(int64_t rows) const {
  double ratio = 1;
  int64_t measured = 1;  // the most rows up to here that were measured
  double at_measured = 1;
  for (int64_t t = 2; t <= rows; ++t) {
    const auto r = static_cast<size_t>(t);
    if (counts_[r] > 0) {
      measured = t;
      at_measured = ratios_[r];
    }
    ratio = std::max(ratio, at_measured * Usual(t, measured));
  }
  return ratio;
}

void DraftRecord::Record(const Proposal& proposal, int64_t tried, int64_t right) {
  if (tried > 0) proposals_ = proposals_ * kRecordDecay + 1;
  for (int64_t j = 0; j < std::min(tried, right + 1); ++j) {
    const auto i = static_cast<size_t>(j);
    right_[i] = right_[i] * kRecordDecay + (j < right ? 1 : 0);
    believed_[i] = believed_[i] * kRecordDecay + proposal.belief[i];
  }
}

DraftChances DraftRecord::Chances(std::span<const float, kMostDrafts> belief) const {
  DraftChances chances;
  double correction = 1;  // a position that was seldom tried is judged like the one before it
  for (size_t j = 0; j < chances.size(); ++j) {
    correction = (right_[j] + correction) / (believed_[j] + 1);
    chances[j] = std::clamp(correction * static_cast<double>(belief[j]), 0.0, kBestChance);
  }
  return chances;
}

DraftChoice BestDrafts(const StepCosts& costs, const DraftChances& chances, int64_t most, double overhead,
                       double worst_loss) {
  DraftChoice best;
  double expected = 1, all_right = 1;
  for (int64_t n = 1; n <= most; ++n) {
    all_right *= chances[static_cast<size_t>(n - 1)];
    expected += all_right;
    const double cost = costs.Ratio(n + 1) + overhead;
    if (cost - 1 > worst_loss) break;
    if (expected / cost > best.rate) best = {n, expected / cost};
  }
  return best;
}

}  // namespace deltafin
