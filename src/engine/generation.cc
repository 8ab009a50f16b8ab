#include "engine/generation.h"

#include <algorithm>

namespace deltafin {
namespace {

bool Contains(std::span<const TokenId> tokens, TokenId token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

// A cache that cannot keep something costs time later, and nobody an answer now.
void Keep(const Session& session, const GenerationRequest& request, std::span<const float> logits) {
  if (request.prefix_cache != nullptr) (void)request.prefix_cache->Keep(session, request.conversation, logits);
}

Status ReadPrompt(Engine& engine, Session& session, const GenerationRequest& request, std::span<const TokenId> tokens,
                  std::span<float> logits, int64_t* tokens_read) {
  const Rows row(logits.data(), 1, static_cast<int64_t>(logits.size()));
  if (request.prefix_cache == nullptr) {
    *tokens_read = static_cast<int64_t>(tokens.size());
    return engine.Feed(session, tokens, row, request.cancel);
  }
  DFIN_TRY(const bool all, request.prefix_cache->Resume(tokens, request.conversation, session, logits));
  const std::span<const TokenId> rest = tokens.subspan(session.tokens().size());
  PrefixCacheCounters& counters = request.prefix_cache->counters();
  counters.tokens_wanted += tokens.size();
  counters.tokens_read += rest.size();
  *tokens_read = static_cast<int64_t>(rest.size());
  if (all) return {};
  const FeedStops stops{request.prefix_cache->interval(), [&]() -> Status {
                          if (session.tokens().size() < tokens.size()) Keep(session, request, {});
                          return {};
                        }};
  DFIN_TRY_VOID(engine.Feed(session, rest, row, request.cancel, nullptr, &stops));
  Keep(session, request, logits);
  return {};
}

// The tokens of an answer, reported as they come.
class Answer {
 public:
  Answer(const GenerationRequest& request, EngineMonitor& monitor, int64_t limit)
      : request_(request), monitor_(monitor), limit_(limit) {
    result.tokens.reserve(static_cast<size_t>(limit));
    result.prompt_tokens = static_cast<int64_t>(request.prompt.size());
  }

  // False: it was the last one.
  bool Report(TokenId token) {
    result.tokens.push_back(token);
    if (result.tokens.size() == 1) result.seconds_first_token = seconds();
    result.seconds_total = seconds();
    monitor_.SetDone(result.tokens.size());
    const bool wanted = !request_.on_token || request_.on_token(token);
    if (Contains(request_.stop_tokens, token))
      result.reason = StopReason::kStopToken;
    else if (!wanted)
      result.reason = StopReason::kCaller;
    else if (static_cast<int64_t>(result.tokens.size()) >= limit_)
      result.reason = StopReason::kLength;
    else
      return true;
    return false;
  }

  int64_t left() const { return limit_ - static_cast<int64_t>(result.tokens.size()); }
  double seconds() const { return SecondsBetween(start_, clock_.NowNs()); }
  int64_t now() const { return clock_.NowNs(); }

  GenerationResult result;

 private:
  const GenerationRequest& request_;
  EngineMonitor& monitor_;
  const int64_t limit_;
  const SteadyClock clock_;
  const int64_t start_ = clock_.NowNs();
};

Status Check(const Engine& engine, const Session& session, const GenerationRequest& request) {
  DFIN_TRY_VOID(request.sampling.Validate());
  if (request.prompt.empty()) return Fail(ErrorCode::kInvalidArgument, "prompt: expected at least one token, got none");
  const int64_t used = request.prefix_cache == nullptr ? session.length() : 0;
  DFIN_TRY_VOID(CheckTokens(engine.spec(), request.prompt, used, session.capacity()));
  return CheckTokens(engine.spec(), request.answered, 0, session.capacity() + 1);
}

// Reads what there is to read, then one token after the other.
Status Run(Engine& engine, Session& session, const GenerationRequest& request, Answer& answer, EngineMonitor& monitor,
           EngineCounters& after_prompt) {
  const int64_t vocab = engine.spec().vocab_size;
  std::vector<float> logits(static_cast<size_t>(vocab));
  Sampler sampler(request.sampling, vocab, request.usable_vocab == 0 ? vocab : request.usable_vocab);
  std::vector<TokenId> joined;
  std::span<const TokenId> tokens = request.prompt;
  if (!request.answered.empty()) {
    joined.assign(tokens.begin(), tokens.end());
    joined.insert(joined.end(), request.answered.begin(), request.answered.end());
    tokens = joined;
  }
  DFIN_TRY_VOID(ReadPrompt(engine, session, request, tokens, logits, &answer.result.prompt_tokens_read));
  sampler.ObservePrompt(std::span(session.tokens()).first(session.tokens().size() - request.answered.size()));
  sampler.ObserveAnswer(request.answered);
  after_prompt = engine.counters();
  monitor.Enter(Phase::kDecode, static_cast<uint64_t>(request.max_new), answer.now());
  const auto next = [&](const Drafting::SampledRow& row, TokenId* token) -> Result<bool> {
    DFIN_TRY(*token, row.q.empty() ? sampler.Sample(row.logits) : sampler.SampleDrafted(row.logits, row.draft, row.q));
    return answer.Report(*token);
  };
  TokenId token = 0;
  DFIN_TRY(bool more, next({logits}, &token));
  while (more) {
    if (request.drafting != nullptr) {
      DFIN_TRY(more, request.drafting->Step(session, &token, answer.left(), request.cancel, next));
    } else {
      DFIN_TRY_VOID(engine.Feed(session, {&token, 1}, Rows(logits.data(), 1, vocab), request.cancel));
      DFIN_TRY(more, next({logits}, &token));
    }
  }
  return {};
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
  DFIN_TRY_VOID(Check(engine, session, request));
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  // The last new token is never fed, so the context allows one more than it has room for.
  const int64_t used = request.prefix_cache == nullptr ? session.length() : 0;
  const int64_t room = std::max<int64_t>(0, session.capacity() - used - prompt_tokens) + 1;
  Answer answer(request, monitor, request.max_new == 0 ? room : std::min(request.max_new, room));
  const EngineCounters before = engine.counters();
  EngineCounters after_prompt = before;
  monitor.Enter(Phase::kPrefill, static_cast<uint64_t>(prompt_tokens), answer.now());
  if (request.drafting != nullptr) request.drafting->BeginRequest(session, request.stop_tokens);
  bool more = true;
  for (const TokenId token : request.answered)
    if (more) more = answer.Report(token);
  Status run;
  if (more) run = Run(engine, session, request, answer, monitor, after_prompt);
  if (run && more) Keep(session, request, {});
  monitor.Enter(Phase::kIdle, 0, answer.now());
  GenerationResult& result = answer.result;
  if (request.drafting != nullptr) {
    result.drafts = request.drafting->report();
    request.drafting->EndRequest(session);
  }
  const EngineCounters now = engine.counters();
  result.used = now.Since(before);
  result.used_decoding = now.Since(run || !result.tokens.empty() ? after_prompt : now);
  if (!run) {
    if (run.error().code() != ErrorCode::kCancelled) return Failure(std::move(run.error()));
    result.reason = StopReason::kCancelled;
    result.seconds_total = answer.seconds();
  }
  return std::move(answer.result);
}

}  // namespace deltafin
