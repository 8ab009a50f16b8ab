#include "engine/request_batch.h"

#include <algorithm>

namespace deltafin {
namespace {

// Rows of a prompt that is scored: each has logits of the whole vocabulary.
constexpr int64_t kScoredRows = 16;

bool IsProperPrefix(std::span<const TokenId> held, std::span<const TokenId> tokens) {
  return held.size() < tokens.size() && std::equal(held.begin(), held.end(), tokens.begin());
}

}  // namespace

struct RequestBatch::Live {
  enum class State : uint8_t { kWaiting, kReading, kAnswering, kEnded };

  Live(BatchRequest wanted, Session empty, Sampler chooser, uint64_t number, int64_t start)
      : request(std::move(wanted)),
        session(std::move(empty)),
        sampler(std::move(chooser)),
        id(number),
        start_ns(start) {}

  int64_t prompt_tokens() const { return static_cast<int64_t>(request.prompt.size()); }
  bool keeps_prefix() const { return !request.score_prompt; }

  BatchRequest request;
  Session session;
  Sampler sampler;
  uint64_t id;
  int64_t start_ns;
  State state = State::kWaiting;
  int64_t limit = 0;  // of new tokens
  TokenId next = 0;   // chosen, not fed yet
  BatchResult result;
};

struct RequestBatch::Plan {
  Live* reader = nullptr;
  int64_t reader_rows = 0;
  int64_t reader_logits = 0;  // its last rows that get logits
  std::vector<Live*> answering;

  int64_t logit_rows() const { return reader_logits + static_cast<int64_t>(answering.size()); }
};

RequestBatch::RequestBatch(Engine& engine, EngineMonitor& monitor, PrefixCache* prefixes, CancelToken stop,
                           Drafting* drafting)
    : engine_(engine), monitor_(monitor), prefixes_(prefixes), stop_(stop), drafting_(drafting) {}
RequestBatch::~RequestBatch() = default;

int64_t RequestBatch::Room(const Engine& engine, int64_t prompt_tokens) {
  // The last new token is never fed, so the context allows one more than it has room for.
  return std::max<int64_t>(0, engine.plan().context - prompt_tokens) + 1;
}

Status RequestBatch::Check(const Engine& engine, const BatchRequest& request) {
  DFIN_TRY_VOID(request.sampling.Validate());
  if (request.prompt.empty())
    return deltafin::Fail(ErrorCode::kInvalidArgument, "prompt: expected at least one token, got none");
  const int64_t vocab = engine.spec().vocab_size;
  for (const auto& [id, bias] : request.logit_bias)
    if (id < 0 || id >= vocab)
      return deltafin::Fail(ErrorCode::kInvalidArgument, "logit_bias: token id ", id, ": expected 0 to ", vocab - 1);
  return CheckTokens(engine.spec(), request.prompt, 0, engine.plan().context);
}

Result<Session> RequestBatch::TakeSession(std::span<const TokenId> prompt) {
  if (sessions_.empty()) return engine_.NewSession();
  // One that already holds the beginning of this prompt, else the one that holds least.
  size_t best = 0;
  bool goes_on = false;
  for (size_t i = 0; i < sessions_.size(); ++i) {
    const std::vector<TokenId>& held = sessions_[i].tokens();
    const std::vector<TokenId>& best_held = sessions_[best].tokens();
    if (IsProperPrefix(held, prompt) && !held.empty()) {
      if (!goes_on || held.size() > best_held.size()) best = i;
      goes_on = true;
    } else if (!goes_on && held.size() < best_held.size()) {
      best = i;
    }
  }
  Session session = std::move(sessions_[best]);
  sessions_.erase(sessions_.begin() + static_cast<std::ptrdiff_t>(best));
  if (!goes_on) session.Reset();
  return session;
}

void RequestBatch::ReturnSession(Session session) { sessions_.push_back(std::move(session)); }

Status RequestBatch::Add(BatchRequest request) {
  DFIN_CHECK(request.events != nullptr, "a request without events");
  DFIN_TRY_VOID(Check(engine_, request));
  DFIN_TRY(Session session, TakeSession(request.score_prompt ? std::span<const TokenId>() : request.prompt));
  const int64_t vocab = engine_.spec().vocab_size;
  if (request.usable_vocab == 0) request.usable_vocab = vocab;
  Sampler sampler(request.sampling, vocab, request.usable_vocab);
  requests_.emplace_back(std::move(request), std::move(session), std::move(sampler), ++arrivals_, clock_.NowNs());
  Live& live = requests_.back();
  const int64_t room = Room(engine_, live.prompt_tokens());
  live.limit = live.request.max_new == 0 ? room : std::min(live.request.max_new, room);
  live.result.prompt_tokens = live.prompt_tokens();
  return {};
}

void RequestBatch::DropCancelled() {
  for (Live& live : requests_)
    if (live.state != Live::State::kEnded && live.request.cancel.cancelled()) Finish(live, StopReason::kCancelled);
  RemoveEnded();
}

// Somebody who came earlier is reading the same prompt: its state will be had for nothing.
bool RequestBatch::SharesPrompt(const Live& waiting) const {
  if (waiting.request.score_prompt) return false;
  return std::any_of(requests_.begin(), requests_.end(), [&](const Live& other) {
    return other.id < waiting.id && other.keeps_prefix() && !other.request.no_answer &&
           (other.state == Live::State::kReading || other.state == Live::State::kWaiting) &&
           other.request.prompt == waiting.request.prompt;
  });
}

void RequestBatch::StartReading() {
  for (Live& live : requests_) {
    if (live.state != Live::State::kWaiting || SharesPrompt(live)) continue;
    live.state = Live::State::kReading;
    const Status begun = Begin(live);
    if (!begun) Fail(live, begun.error());
  }
  RemoveEnded();
}

// What the session or the cache hold of the prompt is not read again.
Status RequestBatch::Begin(Live& live) {
  const std::span<const TokenId> prompt = live.request.prompt;
  std::vector<float> logits;
  if (!live.request.no_answer) BeginDrafting(live);
  if (prefixes_ != nullptr && live.keeps_prefix()) {
    logits.resize(static_cast<size_t>(engine_.spec().vocab_size));
    DFIN_TRY(const bool whole, prefixes_->Resume(prompt, live.request.conversation, live.session, logits));
    if (!whole) logits.clear();
  }
  live.result.prompt_tokens_read = live.prompt_tokens() - live.session.length();
  if (prefixes_ != nullptr) {
    prefixes_->counters().tokens_wanted += prompt.size();
    prefixes_->counters().tokens_read += static_cast<uint64_t>(live.result.prompt_tokens_read);
  }
  if (!logits.empty()) PromptIsRead(live, logits);
  return {};
}

RequestBatch::Live* RequestBatch::NextReader() {
  Live* first = nullptr;
  for (Live& live : requests_) {
    if (live.state != Live::State::kReading) continue;
    if (first == nullptr) first = &live;
    if (live.id > last_reader_) return &live;
  }
  return first;
}

RequestBatch::Plan RequestBatch::Compose() {
  Plan plan;
  const int64_t most = engine_.plan().chunk;
  std::vector<Live*> answering;
  for (Live& live : requests_)
    if (live.state == Live::State::kAnswering) answering.push_back(&live);
  Live* reader = NextReader();
  if (!answering.empty() && prompt_debt_ > 0) reader = nullptr;
  // At least one row is the reader's; with steps of one row it takes the whole step.
  const auto room = static_cast<size_t>(reader == nullptr ? most : most - 1);
  const size_t count = std::min(answering.size(), room);
  for (size_t i = 0; i < count; ++i) plan.answering.push_back(answering[(rotation_ + i) % answering.size()]);
  if (count < answering.size()) rotation_ = (rotation_ + count) % answering.size();
  if (reader == nullptr) return plan;
  plan.reader = reader;
  last_reader_ = reader->id;
  const int64_t read = reader->session.length(), left = reader->prompt_tokens() - read;
  int64_t rows = std::min(left, most - static_cast<int64_t>(count));
  if (reader->request.score_prompt)
    rows = std::min(rows, kScoredRows);
  else if (prefixes_ != nullptr)
    rows = std::min(rows, prefixes_->interval() - read % prefixes_->interval());
  plan.reader_rows = rows;
  plan.reader_logits = reader->request.score_prompt ? rows : (rows == left ? 1 : 0);
  return plan;
}

// One pass, then what its logits mean for each request.
Status RequestBatch::Run(const Plan& plan) {
  const int64_t vocab = engine_.spec().vocab_size;
  std::vector<StepPart> parts;
  if (plan.reader != nullptr)
    parts.push_back({&plan.reader->session, std::span<const TokenId>(plan.reader->request.prompt)
                                                .subspan(static_cast<size_t>(plan.reader->session.length()),
                                                         static_cast<size_t>(plan.reader_rows))});
  for (Live* live : plan.answering) parts.push_back({&live->session, {&live->next, 1}});
  const auto floats = static_cast<size_t>(plan.logit_rows() * vocab);
  if (logits_.size() < floats) logits_.resize(floats);
  CancelToken cancel = stop_;
  if (parts.size() == 1)
    cancel = plan.reader != nullptr ? plan.reader->request.cancel : plan.answering[0]->request.cancel;
  const auto on_layer = [&](int32_t layer) {
    if (plan.reader == nullptr) return;
    const auto layers = static_cast<int64_t>(engine_.spec().layers.size());
    plan.reader->request.events->OnPromptRead(plan.reader->session.length() + plan.reader_rows * layer / layers,
                                              plan.reader->prompt_tokens());
  };
  DFIN_TRY_VOID(engine_.Step(parts, Rows(logits_.data(), plan.logit_rows(), vocab), cancel, on_layer));
  const auto row = [&](int64_t index, int64_t count) {
    return std::span(logits_).subspan(static_cast<size_t>(index * vocab), static_cast<size_t>(count * vocab));
  };
  for (size_t i = 0; i < plan.answering.size(); ++i)
    SampleOrFinish(*plan.answering[i], row(plan.reader_logits + static_cast<int64_t>(i), 1));
  if (plan.reader != nullptr) AfterPrompt(*plan.reader, plan.reader_rows, row(0, plan.reader_logits));
  return {};
}

void RequestBatch::BeginDrafting(Live& live) {
  if (drafting_ == nullptr || drafted_ != 0) return;
  drafted_ = live.id;
  drafting_->BeginRequest(live.session, live.request.stop_tokens);
}

void RequestBatch::EndDrafting(Live& live) {
  if (drafted_ != live.id) return;
  for (const DraftReport::OfDrafter& drafter : drafting_->report().drafters) {
    drafts_tried_ += drafter.tried();
    drafts_right_ += drafter.right();
    drafters_silent_ += drafter.silence.empty() ? 0 : 1;
  }
  drafting_->EndRequest(live.session);
  drafted_ = 0;
}

// A step of the only answer. It ends when the session holds what it was sampled from.
Status RequestBatch::RunDrafted(Live& live) {
  std::optional<StopReason> reason;
  const auto next = [&](const Drafting::SampledRow& row, TokenId* token) -> Result<bool> {
    reason = Sample(live, row);
    *token = live.next;
    return !reason && live.state == Live::State::kAnswering;
  };
  TokenId pending = live.next;
  const Result<bool> more =
      drafting_->Step(live.session, &pending, live.limit - live.result.new_tokens, live.request.cancel, next);
  if (!more) return Failure(more.error());
  if (reason) Finish(live, *reason);
  return {};
}

// A step that failed for one of several must not end the others.
void RequestBatch::RunAlone(const Plan& plan) {
  const auto alone = [&](Plan one, Live& live) {
    const Status ran = Run(one);
    if (!ran && ran.error().code() != ErrorCode::kCancelled) Fail(live, ran.error());
  };
  if (plan.reader != nullptr) {
    Plan one = plan;
    one.answering.clear();
    alone(one, *plan.reader);
  }
  for (Live* live : plan.answering) {
    Plan one;
    one.answering = {live};
    alone(one, *live);
  }
}

bool RequestBatch::Step() {
  DropCancelled();
  StartReading();
  if (requests_.empty()) {
    ShowPhase();
    return false;
  }
  ShowPhase();
  const Plan plan = Compose();
  const int64_t start = clock_.NowNs();
  const bool is_alone = plan.reader == nullptr && plan.answering.size() == 1;
  if (is_alone) BeginDrafting(*plan.answering[0]);
  const bool is_drafted = is_alone && drafted_ == plan.answering[0]->id;
  const Status ran = is_drafted ? RunDrafted(*plan.answering[0]) : Run(plan);
  if (!ran && ran.error().code() != ErrorCode::kCancelled) {
    if (plan.reader != nullptr && plan.answering.empty())
      Fail(*plan.reader, ran.error());
    else if (is_alone)
      Fail(*plan.answering[0], ran.error());
    else
      RunAlone(plan);
  }
  const double seconds = SecondsBetween(start, clock_.NowNs());
  prompt_debt_ = plan.reader != nullptr ? seconds : std::max(0.0, prompt_debt_ - seconds);
  RemoveEnded();
  if (requests_.empty()) ShowPhase();
  return !requests_.empty();
}

void RequestBatch::ScorePrompt(Live& live, int64_t rows, std::span<const float> logits) {
  const int64_t vocab = engine_.spec().vocab_size;
  const int64_t first = live.session.length() - rows;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t index = first + i + 1;  // the token that these logits are about
    if (index >= live.prompt_tokens()) return;
    const auto row = logits.subspan(static_cast<size_t>(i * vocab), static_cast<size_t>(vocab));
    live.request.events->OnPromptScores(
        index, ScoreToken(row, live.request.usable_vocab, live.request.prompt[static_cast<size_t>(index)],
                          std::max<int64_t>(live.request.top_scores, 0)));
  }
}

void RequestBatch::AfterPrompt(Live& live, int64_t rows, std::span<const float> logits) {
  live.request.events->OnPromptRead(live.session.length(), live.prompt_tokens());
  if (live.request.score_prompt) ScorePrompt(live, rows, logits);
  if (live.session.length() < live.prompt_tokens()) {
    // A cache that cannot keep something costs time later, and nobody an answer now.
    if (prefixes_ != nullptr && live.keeps_prefix() && live.session.length() % prefixes_->interval() == 0)
      (void)prefixes_->Keep(live.session, live.request.conversation, {});
    return;
  }
  const std::span<const float> last = logits.last(static_cast<size_t>(engine_.spec().vocab_size));
  if (prefixes_ != nullptr && live.keeps_prefix()) (void)prefixes_->Keep(live.session, live.request.conversation, last);
  GiveToSiblings(live, last);
  PromptIsRead(live, last);
}

void RequestBatch::GiveToSiblings(const Live& live, std::span<const float> logits) {
  if (!live.keeps_prefix()) return;
  for (Live& other : requests_) {
    if (other.state != Live::State::kWaiting || other.request.score_prompt ||
        other.request.prompt != live.request.prompt)
      continue;
    Result<Session> fork = live.session.Fork();
    if (!fork) return;  // it reads the prompt itself
    other.session = std::move(*fork);
    other.state = Live::State::kReading;
    other.request.events->OnPromptRead(other.prompt_tokens(), other.prompt_tokens());
    PromptIsRead(other, logits);
  }
}

void RequestBatch::PromptIsRead(Live& live, std::span<const float> logits) {
  if (live.request.no_answer) {
    Finish(live, StopReason::kLength);
    return;
  }
  live.state = Live::State::kAnswering;
  live.sampler.ObservePrompt(live.request.prompt);
  SampleOrFinish(live, logits);
}

void RequestBatch::SampleOrFinish(Live& live, std::span<const float> logits) {
  if (const std::optional<StopReason> reason = Sample(live, {logits})) Finish(live, *reason);
}

std::optional<StopReason> RequestBatch::Sample(Live& live, const Drafting::SampledRow& row) {
  const BatchRequest& request = live.request;
  std::span<const float> logits = row.logits;
  if (!request.logit_bias.empty() || request.filter != nullptr) {
    changed_logits_.assign(logits.begin(), logits.end());
    logits = changed_logits_;
    for (const auto& [id, bias] : request.logit_bias) changed_logits_[static_cast<size_t>(id)] += bias;
  }
  if (request.filter != nullptr) {
    const Status masked = request.filter->Mask(changed_logits_, live.limit - live.result.new_tokens);
    if (!masked) {
      Fail(live, masked.error());
      return {};
    }
  }
  const Result<TokenId> token =
      row.q.empty() ? live.sampler.Sample(logits) : live.sampler.SampleDrafted(logits, row.draft, row.q);
  if (!token) {
    Fail(live, token.error());
    return {};
  }
  if (request.filter != nullptr) request.filter->Accept(*token);
  live.next = *token;
  BatchResult& result = live.result;
  ++result.new_tokens;
  monitor_.SetDone(++tokens_done_);
  if (result.new_tokens == 1) result.seconds_first_token = SecondsBetween(live.start_ns, clock_.NowNs());
  TokenScores scores;
  const bool scored = request.top_scores >= 0;
  if (scored) scores = ScoreToken(row.logits, request.usable_vocab, *token, request.top_scores);
  const bool wanted = request.events->OnToken(*token, scored ? &scores : nullptr);
  if (std::find(request.stop_tokens.begin(), request.stop_tokens.end(), *token) != request.stop_tokens.end())
    return StopReason::kStopToken;
  if (!wanted) return StopReason::kCaller;
  if (result.new_tokens >= live.limit) return StopReason::kLength;
  return {};
}

void RequestBatch::Fail(Live& live, Error error) {
  live.state = Live::State::kEnded;
  live.request.events->OnEnd(Failure(std::move(error)));
}

void RequestBatch::Finish(Live& live, StopReason reason) {
  live.state = Live::State::kEnded;
  live.result.reason = reason;
  live.result.seconds_total = SecondsBetween(live.start_ns, clock_.NowNs());
  // The next turn of a conversation begins with this answer.
  if (prefixes_ != nullptr && live.keeps_prefix() && live.result.new_tokens > 1)
    (void)prefixes_->Keep(live.session, live.request.conversation, {});
  live.request.events->OnEnd(live.result);
}

void RequestBatch::RemoveEnded() {
  for (auto live = requests_.begin(); live != requests_.end();) {
    if (live->state == Live::State::kEnded) {
      EndDrafting(*live);
      ReturnSession(std::move(live->session));
      live = requests_.erase(live);
    } else {
      ++live;
    }
  }
}

void RequestBatch::EndAll(const Error& error) {
  for (Live& live : requests_)
    if (live.state != Live::State::kEnded) Fail(live, error);
  RemoveEnded();
  ShowPhase();
}

void RequestBatch::ShowPhase() {
  Phase phase = Phase::kIdle;
  const bool reading = std::any_of(requests_.begin(), requests_.end(),
                                   [](const Live& live) { return live.state == Live::State::kReading; });
  if (!requests_.empty()) phase = reading ? Phase::kPrefill : Phase::kDecode;
  if (phase == phase_) return;
  phase_ = phase;
  monitor_.Enter(phase, 0, clock_.NowNs());
  monitor_.SetDone(tokens_done_);
}

}  // namespace deltafin
