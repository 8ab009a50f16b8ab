// Drafter: proposes tokens that may follow a text. What it proposes is checked by the model (engine/drafting.h), so it
// can cost time, never change a token.
//
// A proposal changes nothing: the same history gives the same proposal. History is every token of the conversation, the
// last one included, which the model has not read yet. A drafter notices by itself when the history is another one than
// the last time. Thread rule: engine thread only. Errors: whoever gets one stops asking this drafter for the request.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "draft/session_observer.h"

namespace deltafin {

// Most tokens of a proposal: a step that checks them has one row more.
inline constexpr int64_t kMostDrafts = 7;
// Kinds of evidence that a drafter may tell apart.
inline constexpr int32_t kDraftKinds = 8;

struct Proposal {
  int64_t count = 0;  // tokens proposed; 0: nothing to say
  int32_t kind = 0;   // of evidence, below kDraftKinds: how often it comes true is counted for each
  // What the drafter believes: the probability that token j is right when those before it are. Where it says always the
  // same, only how often it was right counts.
  std::array<float, kMostDrafts> belief = {};
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual std::string_view name() const = 0;
  // Whether a proposal takes so little time that it may be asked for whenever.
  virtual bool costs_nothing() const = 0;
  // Longest proposal, at most kMostDrafts.
  virtual int64_t most() const = 0;
  // Writes up to out.size() tokens. A longer `out` never changes the first of them.
  virtual Result<Proposal> Propose(std::span<const TokenId> history, std::span<TokenId> out) = 0;
  // How it sees what passes over the session compute; null: it needs no more than the history.
  virtual SessionObserver* observer() { return nullptr; }
  // Why a proposal was empty where that concerns the whole conversation; "": there was just nothing to say.
  virtual std::string_view silence() const { return {}; }
  // What token j of the last proposal was drawn from, [vocabulary], when it was drawn at random; empty: it was not.
  // Valid until the next proposal.
  virtual std::span<const float> Distribution(int64_t) const { return {}; }
};

}  // namespace deltafin
