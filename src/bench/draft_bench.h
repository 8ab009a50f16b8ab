// draft_bench: what drafting brings, by drafter, number of drafts and kind of text, beside plain decoding of the same
// texts.
//
// Every case generates the same tokens again; only how they are made differs, and that is checked. Fixed numbers of
// drafts are always checked, whether that pays or not; "auto" is what the controller makes of it, of one drafter or of
// all. Every case begins with an empty expert cache that has learned nothing, so what it reads does not depend on the
// cases before it. Times and bytes are of decoding, without the prompt. Knows tokens only. Thread rule: engine thread
// only. Errors: those of Generate; kInternal when an answer differs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "engine/drafting.h"
#include "engine/engine.h"

namespace deltafin {

struct DraftBenchTexts {
  std::string kind;
  std::vector<std::vector<TokenId>> prompts;
  bool ends = true;  // answers end with a stop token; false: they have all new_tokens
};

struct DraftBenchOptions {
  std::vector<DraftBenchTexts> texts;
  std::vector<int64_t> widths;  // numbers of drafts
  int64_t new_tokens = 0;       // of each prompt
  std::vector<TokenId> stop_tokens;
  TokenId first_special = 0;  // these three: see Drafting::ForPlan
  int64_t usable_vocab = 0;
  std::shared_ptr<const TokenBridge> bridge = {};
  CancelToken cancel;
  std::function<void(const std::string& what)> progress;  // empty: none
};

struct DraftBenchRow {
  static constexpr int64_t kPlain = 0, kAuto = -1;
  std::string kind, drafter;  // drafter "": plain decoding
  int64_t drafts = kPlain;    // at most, in a step
  DraftReport report;         // over all prompts of the kind
  uint64_t tokens = 0;
  EngineCounters used;  // with the prompts

  double seconds_drafting() const;
  double seconds() const { return report.all().seconds + seconds_drafting(); }
  double seconds_per_token() const { return seconds() / static_cast<double>(tokens); }
  double bytes_per_token() const;
  double tokens_per_step() const;

  // Tokens that a step must bring for drafting to be as fast as plain decoding: what it takes, proposals included, in
  // plain steps. tokens_per_step() over it is the speed-up.
  double break_even(const DraftBenchRow& plain) const;
  // The same if a step of T rows took T^0.69 of a plain one (Kimi K3's published logs) and proposals nothing: what the
  // same acceptance would have to bring there, and brings.
  double usual_break_even() const;
  double usual_speed_up() const { return tokens_per_step() / usual_break_even(); }
  static double UsualCost(int64_t rows);
};

// Of the drafters that the engine's plan has room for: at least one.
Result<std::vector<DraftBenchRow>> BenchDrafts(Engine& engine, EngineMonitor& monitor,
                                               const DraftBenchOptions& options);

}  // namespace deltafin
