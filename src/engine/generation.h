// Generation: one request: read a prompt, then produce tokens until something says stop.
//
// Knows tokens only: stop strings and message structure live with the caller, who looks at each token and may end the
// request. Thread rule: engine thread only; the callback runs on it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/cancel.h"
#include "base/ids.h"
#include "base/result.h"
#include "engine/drafting.h"
#include "engine/engine.h"
#include "engine/prefix_cache.h"
#include "engine/sampler.h"

namespace deltafin {

enum class StopReason : uint8_t {
  kStopToken,  // the model ended its turn; the stop token is the last one reported
  kLength,     // max_new or the end of the context
  kCaller,     // on_token said so
  kCancelled,
};

struct GenerationRequest {
  std::span<const TokenId> prompt;  // follows what the session holds; not empty
  int64_t max_new = 0;              // 0 = as many as the context allows
  SamplingParams sampling;
  int64_t usable_vocab = 0;  // see Sampler; 0 = all
  std::span<const TokenId> stop_tokens;
  CancelToken cancel;
  // What an interrupted run of this request has generated: reported again first, then read with the prompt.
  std::span<const TokenId> answered = {};
  // With a cache, `prompt` is the whole sequence from its beginning, and what the session or the cache hold of it is not
  // read again. The prompt's end and the answer's end are kept there for this conversation.
  PrefixCache* prefix_cache = nullptr;
  uint64_t conversation = 0;
  // Checks drafts in the same step: the same tokens in fewer steps. Not owned; null: one token a step. With several
  // tokens of one step the session holds what is before the step while they are reported.
  Drafting* drafting = nullptr;
  // Called with every new token, the stop token included. False ends the request.
  std::function<bool(TokenId)> on_token;
};

struct GenerationResult {
  std::vector<TokenId> tokens;  // new ones, the stop token included
  StopReason reason = StopReason::kLength;
  int64_t prompt_tokens = 0;
  int64_t prompt_tokens_read = 0;  // of them and of answered ones, by the model
  double seconds_first_token = 0;  // from the call to the first new token
  double seconds_total = 0;
  EngineCounters used;           // by this request
  EngineCounters used_decoding;  // of that, after the first new token
  std::optional<DraftReport> drafts;  // with drafting
  // New tokens after the first over the time after the first; 0 with fewer than two.
  double tokens_per_second_steady() const;
  // All new tokens over the whole time, prompt included.
  double tokens_per_second_inclusive() const;
};

// The session afterwards holds the prompt and all new tokens but the last. On an error it holds what was finished;
// after kCancelled the result says so and no error is returned. When the answered tokens were the whole answer, nothing
// is read.
Result<GenerationResult> Generate(Engine& engine, Session& session, EngineMonitor& monitor,
                                  const GenerationRequest& request);

}  // namespace deltafin
