#include "draft/draft_controller.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace deltafin {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
// What is expected of a drafter that was never asked.
constexpr float kFirstBelief = 0.75f;
// Weight of a new proposal in what a drafter usually believes and takes.
constexpr double kUsualWeight = 0.2;

}  // namespace

const char* ToString(DraftState state) {
  switch (state) {
    case DraftState::kMeasuring:
      return "measuring";
    case DraftState::kDrafting:
      return "drafting";
    case DraftState::kWatching:
      return "watching";
    case DraftState::kSpent:
      return "spent";
  }
  return "";
}

DraftController::DraftController(int32_t drafters, DraftLimits limits)
    : limits_(limits), known_(static_cast<size_t>(drafters)) {
  limits_.most = std::clamp<int64_t>(limits_.most, 0, kMostDrafts);
  for (Known& known : known_) known.usual.belief.fill(kFirstBelief);
}

double DraftController::Overhead(const Known& known) const {
  return costs_.known() && costs_.plain_seconds() > 0 ? known.seconds / costs_.plain_seconds() : 0;
}

double DraftController::MayLose(const DraftRecord& record, const DraftChances& chances) const {
  if (balance_ <= 0) return 0;
  if (record.proposals() < kTrustedAfter || chances[0] < kTrustedChance) return balance_;
  const double spare = (kMostShare - kShare) * static_cast<double>(tokens_) - kFirstBalance;
  return balance_ + std::clamp(spare, 0.0, kTrust);
}

int64_t DraftController::Ask(int32_t d, bool costs_nothing, double best_rate) const {
  if (limits_.always || costs_nothing) return limits_.most;
  if (!costs_.known()) return 0;
  const Known& known = known_[static_cast<size_t>(d)];
  const double overhead = Overhead(known);
  const DraftRecord& record = known.records[static_cast<size_t>(known.usual.kind)];
  const DraftChances chances = record.Chances(known.usual.belief);
  const DraftChoice hoped = BestDrafts(costs_, chances, limits_.most, overhead, MayLose(record, chances));
  const bool pays = hoped.rate >= 1 + kLeastGain && hoped.rate > best_rate && !PlainIsDue();
  const bool probes = known.since_probe >= known.probe_every && overhead <= balance_;
  return pays || probes ? limits_.most : 0;
}

DraftChoice DraftController::Choose(int32_t d, const Proposal& proposal, double seconds) {
  Known& known = known_[static_cast<size_t>(d)];
  known.last = proposal;
  asked_seconds_ += seconds;
  known.since_probe = 0;
  known.seconds += (seconds - known.seconds) * (known.asked ? kUsualWeight : 1);
  known.asked = true;
  const int64_t most = std::min(limits_.most, proposal.count);
  if (most > 0) {
    known.usual.kind = proposal.kind;
    for (size_t j = 0; j < static_cast<size_t>(proposal.count); ++j)
      known.usual.belief[j] += (proposal.belief[j] - known.usual.belief[j]) * static_cast<float>(kUsualWeight);
  }
  if (limits_.always) return {most, kNoLimit};
  if (!costs_.known() || PlainIsDue()) return {};
  const DraftRecord& record = known.records[static_cast<size_t>(proposal.kind)];
  const DraftChances chances = record.Chances(proposal.belief);
  const double overhead = Overhead(known);
  const DraftChoice best = BestDrafts(costs_, chances, most, overhead, MayLose(record, chances));
  if (best.rate >= 1 + kLeastGain) return best;
  if (BestDrafts(costs_, chances, most, overhead, kNoLimit).rate >= 1 + kLeastGain) refused_for_balance_ = true;
  return {};
}

void DraftController::Watch(int32_t d, const Proposal& proposal, std::span<const TokenId> tokens) {
  Known& known = known_[static_cast<size_t>(d)];
  if (known.watched.count > 0 || proposal.count == 0) return;
  known.watched = proposal;
  known.watched_right = 0;
  std::copy_n(tokens.begin(), proposal.count, known.watched_tokens.begin());
}

void DraftController::Observed(int32_t d, double seconds, int64_t tokens) {
  if (tokens <= 0) return;
  double& usual = known_[static_cast<size_t>(d)].observing;
  const double a_token = seconds / static_cast<double>(tokens);
  usual += (a_token - usual) * (usual > 0 ? kUsualWeight : 1);
  asked_seconds_ += std::max(0.0, seconds - kLooking * costs_.plain_seconds() * static_cast<double>(tokens));
}

// Nothing is drafted while the account is overdrawn, and it never recovers where looking costs more than it gets.
bool DraftController::MayObserve(int32_t d) const {
  if (limits_.always || !costs_.known() || balance_ > 0) return true;
  return known_[static_cast<size_t>(d)].observing <= (kLooking + kShare) * costs_.plain_seconds();
}

void DraftController::Compare(Known& known, std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    if (known.watched.count == 0) return;
    const bool right = token == known.watched_tokens[static_cast<size_t>(known.watched_right)];
    if (right) ++known.watched_right;
    if (right && known.watched_right < known.watched.count) continue;
    known.records[static_cast<size_t>(known.watched.kind)].Record(known.watched, known.watched.count,
                                                                  known.watched_right);
    known.watched.count = 0;
  }
}

// A stall is not the drafts' doing: one alone is not held against them, unless another follows or it is too often.
double DraftController::Charged(const DraftedStep& step, double plain, StepCosts::Learned learned) {
  const double took = std::min(step.seconds / plain, StepCosts::kMostRatio * static_cast<double>(step.rows));
  if (learned == StepCosts::Learned::kDoubted && since_forgiven_ >= kForgiveEvery) {
    since_forgiven_ = 0;
    forgiven_ = std::max(took - costs_.Ratio(step.rows), 0.0);
    return took - forgiven_;
  }
  const double too_long = learned == StepCosts::Learned::kConfirmed ? forgiven_ : 0;
  if (learned != StepCosts::Learned::kYes) forgiven_ = 0;
  return took + too_long;
}

void DraftController::Record(const DraftedStep& step, std::span<const TokenId> tokens) {
  const bool drafted = step.rows > 1;
  const auto emitted_tokens = static_cast<int64_t>(tokens.size());
  DFIN_CHECK(!drafted || (step.drafter >= 0 && step.drafter < static_cast<int32_t>(known_.size())), "no such drafter");
  const double plain = costs_.plain_seconds();
  const bool known_before = costs_.known();
  const StepCosts::Learned learned = costs_.Record(step.rows, step.seconds);
  const double charged = drafted && plain > 0 ? Charged(step, plain, learned) : 1;
  for (int32_t d = 0; d < static_cast<int32_t>(known_.size()); ++d) {
    Known& known = known_[static_cast<size_t>(d)];
    known.since_probe += emitted_tokens;
    if (drafted && d == step.drafter) {
      known.records[static_cast<size_t>(known.last.kind)].Record(known.last, step.tried, step.right);
      known.watched.count = 0;
      known.probe_every = kFirstProbe;
    } else {
      Compare(known, tokens);
      if (known.since_probe == emitted_tokens && known.seconds > 0)  // it was asked for nothing
        known.probe_every = std::min(2 * known.probe_every, kRarestProbe);
    }
  }
  if (known_before && plain > 0) {
    const double spent = charged + asked_seconds_ / plain;
    const auto emitted = static_cast<double>(emitted_tokens);
    balance_ = std::min(balance_ + emitted - spent + kShare * emitted, kMostBalance);
  }
  drafted_since_plain_ = drafted ? drafted_since_plain_ + 1 : 0;
  plain_tokens_ = drafted ? 0 : plain_tokens_ + 1;
  tokens_ += emitted_tokens;
  since_forgiven_ += emitted_tokens;
  if (plain_tokens_ == kFirstForget || (plain_tokens_ > 0 && plain_tokens_ % kForgetEvery == 0)) costs_.Forget();
  state_ = drafted                ? DraftState::kDrafting
           : !known_before        ? DraftState::kMeasuring
           : refused_for_balance_ ? DraftState::kSpent
                                  : DraftState::kWatching;
  asked_seconds_ = 0;
  refused_for_balance_ = false;
}

void DraftController::ForgetWatched() {
  for (Known& known : known_) known.watched.count = 0;
  asked_seconds_ = 0;
  refused_for_balance_ = false;
}

}  // namespace deltafin
