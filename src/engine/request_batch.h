// RequestBatch: several requests at once: one pass through the network is one decode row of every live request, and at
// times a piece of somebody's prompt beside them, so that the experts that several want are read once.
//
// Prompts are read piece by piece, in turns; after a step with a piece in it, answers go on alone for as long as that
// step took, so that neither waits for ever. A request's tokens are those that it would get alone. Requests with the
// same prompt read it once. A step that fails is tried again request by request, and ends only those that fail alone.
// An answer that is alone may be drafted (engine/drafting.h), with the same tokens; with several the experts' union
// pays already. Knows tokens, not text, and no queue: who may come in is the caller's business. Thread rule: engine
// thread only; events are called on it. Errors of one request go to its OnEnd.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/cancel.h"
#include "base/clock.h"
#include "engine/drafting.h"
#include "engine/engine.h"
#include "engine/generation.h"
#include "engine/prefix_cache.h"
#include "engine/sampler.h"
#include "engine/token_filter.h"
#include "engine/token_scores.h"

namespace deltafin {

struct BatchResult {
  StopReason reason = StopReason::kLength;
  int64_t new_tokens = 0;  // the stop token included
  int64_t prompt_tokens = 0;
  int64_t prompt_tokens_read = 0;  // of them, by the model for this request
  double seconds_first_token = 0;  // from Add()
  double seconds_total = 0;
};

class BatchEvents {
 public:
  virtual ~BatchEvents() = default;
  // Also in the middle of a step: what is done of it counts by its layers.
  virtual void OnPromptRead(int64_t done, int64_t total) = 0;
  // Of prompt token `index`, by what comes before it. Only with score_prompt; never for the first one.
  virtual void OnPromptScores(int64_t index, const TokenScores& scores) = 0;
  // Every new token, the stop token included. `scores` is null unless they were asked for. False ends the request.
  virtual bool OnToken(TokenId token, const TokenScores* scores) = 0;
  // Once, as the last call.
  virtual void OnEnd(const Result<BatchResult>& result) = 0;
};

struct BatchRequest {
  std::vector<TokenId> prompt;
  int64_t max_new = 0;     // 0 = as many as the context allows
  bool no_answer = false;  // the prompt is read (and scored), nothing is generated
  SamplingParams sampling;
  std::vector<std::pair<TokenId, float>> logit_bias;  // added to logits
  int64_t usable_vocab = 0;                           // see Sampler; 0 = all
  std::vector<TokenId> stop_tokens;
  int64_t top_scores = -1;  // -1: no scores; else this many of the likeliest beside each token's own
  bool score_prompt = false;
  uint64_t conversation = 0;      // see PrefixCache
  TokenFilter* filter = nullptr;  // not owned; outlives the request
  CancelToken cancel;             // acts within one step
  BatchEvents* events = nullptr;  // not owned; outlives the request
};

class RequestBatch {
 public:
  // References outlive the batch; `prefixes` and `drafting` may be null. `stop` ends a step that is in progress.
  RequestBatch(Engine& engine, EngineMonitor& monitor, PrefixCache* prefixes, CancelToken stop,
               Drafting* drafting = nullptr);
  ~RequestBatch();
  RequestBatch(const RequestBatch&) = delete;
  RequestBatch& operator=(const RequestBatch&) = delete;

  // kInvalidArgument: what Add() would refuse. Any thread.
  static Status Check(const Engine& engine, const BatchRequest& request);
  // The most new tokens that the context leaves after a prompt of so many.
  static int64_t Room(const Engine& engine, int64_t prompt_tokens);

  // kInvalidArgument, kOutOfMemory: the request is not live, and none of its events was called.
  Status Add(BatchRequest request);
  size_t live() const { return requests_.size(); }
  // Of all requests so far: drafted tokens that were checked, and those that were right.
  uint64_t drafts_tried() const { return drafts_tried_; }
  uint64_t drafts_right() const { return drafts_right_; }
  // Requests in which a drafter was silent for a reason: see DraftReport.
  uint64_t drafters_silent() const { return drafters_silent_; }
  // One pass for those that are live; cancelled ones end first. False: none is live any more.
  bool Step();
  // Ends all that are live: their OnEnd says so.
  void EndAll(const Error& error);

 private:
  struct Live;
  struct Plan;  // who takes part in a step, and with what

  Result<Session> TakeSession(std::span<const TokenId> prompt);
  void ReturnSession(Session session);
  void DropCancelled();
  void StartReading();
  Status Begin(Live& live);
  bool SharesPrompt(const Live& waiting) const;
  Plan Compose();
  Live* NextReader();
  Status Run(const Plan& plan);
  // It is this one that is drafted from now on, if none is.
  void BeginDrafting(Live& live);
  void EndDrafting(Live& live);
  Status RunDrafted(Live& live);
  void RunAlone(const Plan& plan);
  void AfterPrompt(Live& live, int64_t rows, std::span<const float> logits);
  void ScorePrompt(Live& live, int64_t rows, std::span<const float> logits);
  void PromptIsRead(Live& live, std::span<const float> logits);
  void GiveToSiblings(const Live& live, std::span<const float> logits);
  // The next token and what it means: why it was the last one, or nothing. After an error the request has ended.
  std::optional<StopReason> Sample(Live& live, const Drafting::SampledRow& row);
  void SampleOrFinish(Live& live, std::span<const float> logits);
  void Fail(Live& live, Error error);
  void Finish(Live& live, StopReason reason);
  void RemoveEnded();
  void ShowPhase();

  Engine& engine_;
  EngineMonitor& monitor_;
  PrefixCache* prefixes_;
  CancelToken stop_;
  Drafting* drafting_;
  uint64_t drafted_ = 0;  // id of the request whose session it follows; 0: none
  uint64_t drafts_tried_ = 0, drafts_right_ = 0, drafters_silent_ = 0;
  const SteadyClock clock_;
  std::list<Live> requests_;           // by arrival
  std::vector<Session> sessions_;      // not in use now
  std::vector<float> logits_;          // of the step
  std::vector<float> changed_logits_;  // of a request with biases or a filter
  uint64_t arrivals_ = 0;
  uint64_t last_reader_ = 0;  // whose turn it was
  uint64_t rotation_ = 0;     // of those that decode, when a step cannot hold all
  double prompt_debt_ = 0;    // seconds that answers go on alone
  uint64_t tokens_done_ = 0;
  Phase phase_ = Phase::kIdle;
};

}  // namespace deltafin
