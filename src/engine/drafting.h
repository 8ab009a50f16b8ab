// Drafting: decoding in steps that check drafted tokens beside the one that is certain. The tokens that come are those
// that plain decoding gives, drawn with the same random numbers.
//
// A step has the pending token (the last one that came, not read yet) and n drafts as rows. Each row's logits are those
// of plain decoding, bit for bit, if the drafts before it were right; so tokens are sampled from row after row, exactly
// as plain decoding samples them, for as long as the sampled token is the drafted one. Rows up to there become part of
// the session, the others never do. Sampling with a seed draws one number a token, whether it was drafted or not, and a
// draft is accepted when it is the token that was drawn anyway. Only where a drafter
// draws its tokens at random another rule applies, which keeps the distribution and not the tokens (draft/rejection.h).
//
// One Drafting belongs to one conversation at a time; it owns its drafters. Who drafts and how much is the controller's
// decision (draft/draft_controller.h). A drafter that fails or proposes what is no token is not asked again for the
// request. Where a step with drafts fails (the experts of wrong tokens may be ones that cannot be read, and that the
// answer never needs), the pending token is decoded plainly, and so is the rest of the request. Takes its memory in
// Create(). Thread rule: engine thread only. Errors: those of Engine::Feed, of plain steps only; kCancelled of any.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "draft/draft_controller.h"
#include "draft/drafter.h"
#include "engine/engine.h"

namespace deltafin {

// What drafting did for one request.
struct DraftReport {
  struct Steps {  // with so many rows; one that failed brought no tokens
    uint64_t steps = 0, tokens = 0;
    double seconds = 0;
    uint64_t payload_bytes = 0;  // of weights read
    void Add(const Steps& more);
  };
  struct OfDrafter {
    std::string name;
    uint64_t proposals = 0;
    double seconds = 0;                                              // proposing
    double seconds_observing = 0;                                    // looking at the model's rows, in steps
    std::array<uint64_t, kMostDrafts> tried_at = {}, right_at = {};  // by position
    std::string failure;                                             // why it was not asked any more; "": it was
    std::string silence;                                             // why it had nothing to say; see Drafter
    uint64_t tried() const;
    uint64_t right() const;
    void Add(const OfDrafter& more);
  };
  std::array<Steps, kMostDrafts + 2> by_rows = {};
  std::vector<OfDrafter> drafters;
  DraftState state = DraftState::kMeasuring;  // at the end
  std::string given_up;                       // why a step with drafts failed and the rest was plain; "": none did

  Steps all() const;
};

struct DraftingOptions {
  int64_t rows = 0;  // most of a step, at least 2
  DraftLimits limits = {};
};

// With what the engine's plan has room for.
struct DraftingSetup {
  std::vector<TokenId> stop_tokens = {};           // end an answer
  TokenId first_special = 0;                       // ids from here on structure it; 0: unknown
  int64_t usable_vocab = 0;                        // ids from here on are never sampled; 0: unknown
  bool ngram = true;                               // who may draft
  bool draft_model = true;                         // if the plan has one
  std::shared_ptr<const TokenBridge> bridge = {};  // for a draft model that reads text; null: it does not draft
  DraftLimits limits = {};
};

class Drafting {
 public:
  // A row that the next token is sampled from, with the draft for it where that was drawn at random (from `q`).
  struct SampledRow {
    std::span<const float> logits;
    TokenId draft = -1;
    std::span<const float> q = {};
  };
  // Samples the next token and reports it. False: it was the last one.
  using NextToken = std::function<Result<bool>(const SampledRow& row, TokenId* token)>;

  // kOutOfMemory. The engine outlives it.
  static Result<std::unique_ptr<Drafting>> Create(Engine& engine, std::vector<std::unique_ptr<Drafter>> drafters,
                                                  const DraftingOptions& options);
  // Null when the engine's plan has no room.
  static Result<std::unique_ptr<Drafting>> ForPlan(Engine& engine, DraftingSetup setup);

  // Before anything of a request is read into the session, and when it is through. Proposals end with one of
  // `stop_tokens`.
  void BeginRequest(Session& session, std::span<const TokenId> stop_tokens);
  void EndRequest(Session& session) { session.SetObserver(nullptr); }
  // A step of `session` from *pending on, of which at most `most_new` tokens are wanted; *pending becomes the last one
  // that came. The session then holds all but that. False: `next` said so. On an error of `next` the session holds what
  // was sampled from, on any other what it held.
  Result<bool> Step(Session& session, TokenId* pending, int64_t most_new, CancelToken cancel, const NextToken& next);

  const DraftReport& report() const { return report_; }
  const DraftController& controller() const { return controller_; }

 private:
  struct Plan {
    int32_t drafter = -1;
    int64_t drafts = 0;  // in rows_[1], ...
  };
  // The drafter that looks at the model's rows, its time taken: that is no part of what a step costs.
  class Observer final : public SessionObserver {
   public:
    void OnLayer(int32_t layer, const ConstRows& sum) override;
    void OnTokens(std::span<const TokenId> session_tokens, int64_t rows, CancelToken cancel) override;
    double TakeSeconds() { return std::exchange(seconds_, 0); }

    SessionObserver* inner = nullptr;  // null: there is none
    int32_t drafter = -1;

   private:
    SteadyClock clock_;
    double seconds_ = 0;
  };

  Drafting(Engine& engine, std::vector<std::unique_ptr<Drafter>> drafters, const DraftingOptions& options,
           KdaReplay replay);
  Plan ChooseDrafts(int64_t most);
  static bool MayAsk(const DraftReport::OfDrafter& drafter);
  // Of drafter `d` into proposed_: empty when it has none or fails.
  Proposal Ask(size_t d, int64_t most, double* seconds);
  Status CheckProposal(const Proposal& proposal, int64_t most) const;
  void CutBehindStop(Proposal& proposal) const;
  // Computes the rows of `plan`, which becomes a plain one where its drafts could not be checked.
  Status ComputeRows(Session& session, CancelToken cancel, Plan* plan, DraftReport::Steps* step);
  Status ComputeOnce(Session& session, CancelToken cancel, const Plan& plan, DraftReport::Steps* step);
  std::span<const TokenId> RowTokens(const Plan& plan) const {
    return {rows_.data(), static_cast<size_t>(plan.drafts + 1)};
  }
  Result<bool> TakeTokens(const Plan& plan, const NextToken& next, int64_t* right);
  // Tells what observing a step took; who costs more than he may bring stops until the next request.
  void AccountObserver(Session& session, double seconds);
  void Account(const Plan& plan, int64_t right, const DraftReport::Steps& step);

  Engine& engine_;
  std::vector<std::unique_ptr<Drafter>> drafters_;
  Observer observer_;
  DraftController controller_;
  KdaReplay replay_;
  SteadyClock clock_;
  int64_t most_rows_;
  std::vector<TokenId> history_;  // what the session holds, and the pending token
  std::vector<TokenId> stop_tokens_;
  std::vector<float> logits_;  // [most_rows, vocab]
  std::array<TokenId, kMostDrafts + 1> rows_ = {};
  std::array<TokenId, kMostDrafts + 1> came_ = {};
  std::array<TokenId, kMostDrafts> proposed_ = {};
  int64_t came_count_ = 0;
  DraftReport report_;
};

}  // namespace deltafin
