#include "engine/generation.h"

#include <algorithm>

namespace deltafin {
namespace {

bool Contains(std::span<const TokenId> tokens, TokenId token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

}  // namespace

double GenerationResult::tokens_per_second_steady() const {
  const double seconds = seconds_total - seconds_first_token;
  return tokens.size() < 2 || seconds <= 0 ? 0 : static_cast<double>(tokens.size() - 1) / seconds;
}

double GenerationResult::tokens_per_second_inclusive() const {
  return seconds_total <= 0 ? 0 : static_cast<double>(tokens.size()) / seconds_total;
}

Result<GenerationResult> Generate(Engine& engine, Session& session, EngineMonitor& monitor,
                                  const GenerationRequest& request) {
  DFIN_TRY_VOID(request.sampling.Validate());
  if (request.prompt.empty()) return Fail(ErrorCode::kInvalidArgument, "prompt: expected at least one token, got none");
  const SteadyClock clock;
  const int64_t start = clock.NowNs();
  const int64_t vocab = engine.spec().vocab_size;
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());

  GenerationResult result;
  result.prompt_tokens = prompt_tokens;
  const EngineCounters before = engine.counters();
  EngineCounters after_prompt = before;
  // The last new token is never fed, so the context allows one more than it has room for.
  const int64_t room = std::max<int64_t>(0, session.capacity() - session.length() - prompt_tokens) + 1;
  const int64_t limit = request.max_new == 0 ? room : std::min(request.max_new, room);
  result.tokens.reserve(static_cast<size_t>(limit));
  std::vector<float> logits(static_cast<size_t>(vocab));
  Sampler sampler(request.sampling, vocab, request.usable_vocab == 0 ? vocab : request.usable_vocab);

  const auto feed = [&](std::span<const TokenId> tokens) {
    return engine.Feed(session, tokens, Rows(logits.data(), 1, vocab), request.cancel);
  };
  monitor.Enter(Phase::kPrefill, static_cast<uint64_t>(prompt_tokens), start);
  Status fed = feed(request.prompt);
  if (fed) {
    sampler.ObservePrompt(session.tokens());
    after_prompt = engine.counters();
    monitor.Enter(Phase::kDecode, static_cast<uint64_t>(request.max_new), clock.NowNs());
  }
  while (fed) {
    DFIN_TRY(const TokenId token, sampler.Sample(logits));
    result.tokens.push_back(token);
    if (result.tokens.size() == 1) result.seconds_first_token = SecondsBetween(start, clock.NowNs());
    result.seconds_total = SecondsBetween(start, clock.NowNs());
    monitor.SetDone(result.tokens.size());
    const bool wanted = !request.on_token || request.on_token(token);
    if (Contains(request.stop_tokens, token))
      result.reason = StopReason::kStopToken;
    else if (!wanted)
      result.reason = StopReason::kCaller;
    else if (static_cast<int64_t>(result.tokens.size()) >= limit)
      result.reason = StopReason::kLength;
    else {
      fed = feed({&result.tokens.back(), 1});
      continue;
    }
    break;
  }
  monitor.Enter(Phase::kIdle, 0, clock.NowNs());
  const EngineCounters now = engine.counters();
  result.used = now.Since(before);
  result.used_decoding = now.Since(fed || !result.tokens.empty() ? after_prompt : now);
  if (!fed) {
    if (fed.error().code() != ErrorCode::kCancelled) return Failure(std::move(fed.error()));
    result.reason = StopReason::kCancelled;
    result.seconds_total = SecondsBetween(start, clock.NowNs());
  }
  return result;
}

}  // namespace deltafin
