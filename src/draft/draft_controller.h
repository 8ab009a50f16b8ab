// DraftController: decides, before every step, whether to draft, who drafts, and how many tokens.
//
// It knows only what it is told: how long steps took and which tokens were right. Drafts are checked when they should
// bring at least kLeastGain more tokens for the time. While they would not, tokens are decoded plainly, and proposals
// are only watched: compared with the tokens that come anyway, which costs no more than making the proposal (nothing
// for n-grams; a drafter that costs something is asked ever more rarely). So a text that has begun to repeat itself is
// noticed without paying for it. An account bounds the damage where estimates are wrong: drafting over n tokens never
// loses more than kFirstBalance + kShare * n plain steps, and beyond that one step: what it cost more than was known,
// and a trusted drafter's kTrust, as far as all of it together stays within kMostShare * n; and in kForgiveEvery tokens
// what one stalled step took too long. So the first 48 tokens lose 3 % at most where steps cost what was expected. A
// drafter that looks at the model's rows may spend kLooking of a plain step on each token besides; what is beyond that
// is on the account, and once the account would never recover from it, the drafter should stop looking. Learned figures
// outlive a request. No time, no randomness, no memory taken after construction. Thread-compatible.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "draft/draft_economics.h"
#include "draft/drafter.h"

namespace deltafin {

enum class DraftState : uint8_t {
  kMeasuring,  // what a plain step costs is not known yet
  kDrafting,
  kWatching,  // plain: drafts would not pay
  kSpent,     // plain: drafts might pay, but earlier ones have cost too much
};
const char* ToString(DraftState state);

struct DraftLimits {
  int64_t most = kMostDrafts;  // tokens of a proposal that are checked at most
  bool always = false;         // whatever is proposed is checked, whether it pays or not: for measurements
};

// What a step with the pending token and rows - 1 drafts did.
struct DraftedStep {
  int32_t drafter = -1;  // -1: plain
  int64_t rows = 1;
  int64_t tried = 0;  // drafts that were compared: fewer than rows - 1 where the answer ended before
  int64_t right = 0;
  double seconds = 0;  // without proposing and observing
};

class DraftController {
 public:
  static constexpr double kLeastGain = 0.03;
  static constexpr double kFirstBalance = 0.75, kShare = 0.01, kMostBalance = 4;  // in plain steps
  // Of a plain step, for each token: what looking at the model's rows costs whoever may want to draft with it.
  static constexpr double kLooking = 0.005;
  // A drafter that was right this often over so many proposals, checked or watched, may go so far beyond the balance,
  // once there were tokens enough that such a loss is a small share of them.
  static constexpr double kTrust = 1.5, kTrustedChance = 0.8, kTrustedAfter = 5, kMostShare = 0.03;
  // Drafted steps, after which a plain one is measured; fewer while it is not well known.
  static constexpr int64_t kPlainEvery = 24, kFirstPlainEvery = 4;
  static constexpr int64_t kFirstProbe = 16;     // tokens between proposals that cost something and do not pay, ...
  static constexpr int64_t kRarestProbe = 1024;  // ... growing up to this
  // Plain tokens after which measured costs count less: first soon, as what ended drafting may have passed.
  static constexpr int64_t kFirstForget = 32, kForgetEvery = 128;
  // Tokens in which one step that stalled is not held against the drafts.
  static constexpr int64_t kForgiveEvery = 512;

  DraftController(int32_t drafters, DraftLimits limits);

  // Before a step. What drafter `d` should be asked for: 0 = not now.
  int64_t Ask(int32_t d, bool costs_nothing, double best_rate) const;
  // Drafter `d` took `seconds` for a proposal. How many of its tokens to check, 0 to proposal.count; the rate is at
  // least 1.
  DraftChoice Choose(int32_t d, const Proposal& proposal, double seconds);
  // A proposal that is not checked is compared with the tokens that come.
  void Watch(int32_t d, const Proposal& proposal, std::span<const TokenId> tokens);
  // Beside the step that brought `tokens` tokens, drafter `d` took `seconds` to look at its rows. Before Record().
  void Observed(int32_t d, double seconds, int64_t tokens);
  // Whether it should go on.
  bool MayObserve(int32_t d) const;
  // The step was made with the proposal that was chosen last for step.drafter. `tokens`: those emitted.
  void Record(const DraftedStep& step, std::span<const TokenId> tokens);
  // What follows are other tokens than those watched for: another request's, or some were not recorded.
  void ForgetWatched();

  DraftState state() const { return state_; }
  // How often proposals of drafter `d` on evidence of this kind came true, checked ones and watched ones.
  const DraftRecord& record(int32_t d, int32_t kind) const {
    return known_[static_cast<size_t>(d)].records[static_cast<size_t>(kind)];
  }
  double balance() const { return balance_; }  // plain steps that drafts may still lose
  const StepCosts& costs() const { return costs_; }

 private:
  // One drafter's.
  struct Known {
    std::array<DraftRecord, kDraftKinds> records;  // by kind
    Proposal last;                                 // the one that was chosen from
    Proposal usual;                                // mean belief, of the usual kind
    double seconds = 0;                            // of a proposal
    double observing = 0;                          // seconds a token
    bool asked = false;
    int64_t probe_every = kFirstProbe, since_probe = kFirstProbe;
    // Watched: the tokens of a proposal and how far they came true.
    Proposal watched;
    std::array<TokenId, kMostDrafts> watched_tokens = {};
    int64_t watched_right = 0;
  };

  double Overhead(const Known& known) const;
  // Plain steps that a step of drafts is held to have taken.
  double Charged(const DraftedStep& step, double plain, StepCosts::Learned learned);
  // Plain steps that a step with these chances may lose at most.
  double MayLose(const DraftRecord& record, const DraftChances& chances) const;
  void Compare(Known& known, std::span<const TokenId> tokens);
  bool PlainIsDue() const {
    return drafted_since_plain_ >= (costs_.count(1) < StepCosts::kFirstPlain ? kFirstPlainEvery : kPlainEvery);
  }

  DraftLimits limits_;
  std::vector<Known> known_;
  StepCosts costs_;
  DraftState state_ = DraftState::kMeasuring;
  double balance_ = kFirstBalance;
  double asked_seconds_ = 0;  // for proposals of this step
  bool refused_for_balance_ = false;
  int64_t tokens_ = 0;  // all that were recorded
  int64_t drafted_since_plain_ = 0, plain_tokens_ = 0;
  double forgiven_ = 0;  // plain steps that the last forgiven step took too long
  int64_t since_forgiven_ = kForgiveEvery;
};

}  // namespace deltafin
