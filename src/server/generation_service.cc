#include "server/generation_service.h"

#include <algorithm>

namespace deltafin {
namespace {

// At the end checkpoints are written for so long; stopping must not take longer than people wait for it.
constexpr double kSaveSecondsAtEnd = 2;

}  // namespace

struct GenerationService::Waiting {
  QueuedRequest what;
};

// Stands between the batch and a request's own events: counts, and keeps their owner alive.
class GenerationService::Watched final : public BatchEvents {
 public:
  Watched(GenerationService& service, QueuedRequest what) : service_(service), what_(std::move(what)) {}

  BatchRequest Request() {
    BatchRequest request = std::move(what_.request);
    events_ = request.events;
    request.events = this;
    return request;
  }
  void OnPromptRead(int64_t done, int64_t total) override { events_->OnPromptRead(done, total); }
  void OnPromptScores(int64_t index, const TokenScores& scores) override { events_->OnPromptScores(index, scores); }
  bool OnToken(TokenId token, const TokenScores* scores) override {
    service_.new_tokens_.fetch_add(1, std::memory_order_relaxed);
    return events_->OnToken(token, scores);
  }
  void OnEnd(const Result<BatchResult>& result) override {
    service_.Count(result);
    events_->OnEnd(result);
    ended_ = true;
  }
  bool ended() const { return ended_; }
  const std::shared_ptr<CancelSource>& cancel() const { return what_.cancel; }

 private:
  GenerationService& service_;
  QueuedRequest what_;
  BatchEvents* events_ = nullptr;
  bool ended_ = false;
};

GenerationService::GenerationService(Engine& engine, EngineMonitor& monitor, PrefixCache& prefixes,
                                     const ServiceLimits& limits, Drafting* drafting, Logger* logger)
    : engine_(engine),
      prefixes_(prefixes),
      logger_(logger),
      limits_(limits),
      drafting_(drafting),
      batch_(engine, monitor, &prefixes, stop_step_.token(), drafting) {
  thread_ = std::thread([this] { Loop(); });
}

GenerationService::~GenerationService() { Stop(); }

Status GenerationService::Submit(const std::string& client, std::vector<QueuedRequest> group) {
  for (const QueuedRequest& one : group) DFIN_TRY_VOID(RequestBatch::Check(engine_, one.request));
  const auto count = static_cast<int64_t>(group.size());
  const std::lock_guard lock(mutex_);
  if (stopping_) return Fail(ErrorCode::kCancelled, "the server is stopping");
  std::deque<std::unique_ptr<Waiting>>& line = lines_[client];
  // With nothing ahead, a group may be as large as what is computed at once and the queue hold together.
  const int64_t room = limits_.queue + std::max<int64_t>(0, limits_.live - counters_.live);
  if (queued_ + count > room || static_cast<int64_t>(line.size()) + count > limits_.per_client) {
    if (line.empty()) lines_.erase(client);
    counters_.refused += static_cast<uint64_t>(count);
    return Fail(ErrorCode::kUnavailable, "the queue is full: ", queued_.load(), " requests wait and ", counters_.live,
                " are being answered: try again later");
  }
  for (QueuedRequest& one : group) line.push_back(std::make_unique<Waiting>(Waiting{std::move(one)}));
  queued_ += count;
  counters_.accepted += static_cast<uint64_t>(count);
  wake_.notify_one();
  return {};
}

void GenerationService::NoteCancelled() {
  const std::lock_guard lock(mutex_);
  look_for_cancelled_ = true;
  wake_.notify_one();
}

// The client after the one that was served last. Under the lock.
std::unique_ptr<GenerationService::Waiting> GenerationService::NextWaiting() {
  if (lines_.empty()) return nullptr;
  auto line = lines_.upper_bound(last_client_);
  if (line == lines_.end()) line = lines_.begin();
  last_client_ = line->first;
  std::unique_ptr<Waiting> next = std::move(line->second.front());
  line->second.pop_front();
  if (line->second.empty()) lines_.erase(line);
  --queued_;
  return next;
}

void GenerationService::Admit(std::unique_ptr<Waiting> waiting) {
  auto watched = std::make_shared<Watched>(*this, std::move(waiting->what));
  BatchRequest request = watched->Request();
  const Status added = batch_.Add(std::move(request));
  if (!added) {
    watched->OnEnd(Failure(added.error()));
    return;
  }
  live_[watched.get()] = std::move(watched);
}

std::vector<std::unique_ptr<GenerationService::Waiting>> GenerationService::TakeCancelled() {
  std::vector<std::unique_ptr<Waiting>> cancelled;
  for (auto line = lines_.begin(); line != lines_.end();) {
    std::erase_if(line->second, [&](std::unique_ptr<Waiting>& waiting) {
      if (!waiting->what.request.cancel.cancelled()) return false;
      cancelled.push_back(std::move(waiting));
      return true;
    });
    line = line->second.empty() ? lines_.erase(line) : std::next(line);
  }
  queued_ -= static_cast<int64_t>(cancelled.size());
  return cancelled;
}

void GenerationService::EndWaiting(std::vector<std::unique_ptr<Waiting>> ended, const Result<BatchResult>& how) {
  for (const std::unique_ptr<Waiting>& waiting : ended) {
    Count(how);
    waiting->what.request.events->OnEnd(how);
  }
}

void GenerationService::Count(const Result<BatchResult>& result) {
  const std::lock_guard lock(mutex_);
  if (!result) {
    ++(result.error().code() == ErrorCode::kCancelled ? counters_.cancelled : counters_.failed);
    return;
  }
  ++(result->reason == StopReason::kCancelled ? counters_.cancelled : counters_.completed);
  counters_.prompt_tokens += static_cast<uint64_t>(result->prompt_tokens);
  counters_.prompt_tokens_read += static_cast<uint64_t>(result->prompt_tokens_read);
  if (result->new_tokens == 0) return;
  counters_.seconds_first_token += result->seconds_first_token;
  counters_.last_seconds_first_token = result->seconds_first_token;
  ++counters_.first_tokens;
}

bool GenerationService::NoteLive() {
  const std::lock_guard lock(mutex_);
  live_cancels_.clear();
  for (const auto& [events, watched] : live_) live_cancels_.push_back(watched->cancel());
  return !stopping_;
}

bool GenerationService::SavePrefix() {
  const Result<bool> saved = prefixes_.SaveNext();
  if (!saved && logger_ != nullptr) logger_->WarnOnce(Cat("prefix cache: not kept: ", saved.error().message()));
  return saved && *saved;
}

void GenerationService::WarnOfDrafters() {
  if (drafting_ == nullptr || logger_ == nullptr) return;
  const auto warn = [this](const std::string& who, const std::string& what) {
    if (!what.empty() && warned_of_.insert(who).second)
      logger_->Warn(Cat("drafting: ", who, ": ", what, ": the answer goes on without it"));
  };
  for (const DraftReport::OfDrafter& drafter : drafting_->report().drafters) warn(drafter.name, drafter.failure);
  warn("a step with drafts failed", drafting_->report().given_up);
}

void GenerationService::Loop() {
  bool busy = false, unsaved = false;
  for (;;) {
    std::vector<std::unique_ptr<Waiting>> admitted, cancelled;
    {
      std::unique_lock lock(mutex_);
      const auto something = [&] { return busy || stopping_ || look_for_cancelled_ || !lines_.empty(); };
      while (unsaved && !something()) {
        lock.unlock();
        unsaved = SavePrefix();
        lock.lock();
      }
      wake_.wait(lock, something);
      if (stopping_) break;
      if (look_for_cancelled_) cancelled = TakeCancelled();
      look_for_cancelled_ = false;
      while (static_cast<int64_t>(batch_.live() + admitted.size()) < limits_.live) {
        std::unique_ptr<Waiting> next = NextWaiting();
        if (next == nullptr) break;
        admitted.push_back(std::move(next));
      }
      counters_.live = static_cast<int64_t>(batch_.live() + admitted.size());
    }
    BatchResult gone;
    gone.reason = StopReason::kCancelled;
    EndWaiting(std::move(cancelled), gone);
    for (std::unique_ptr<Waiting>& waiting : admitted) Admit(std::move(waiting));
    if (!NoteLive()) break;
    const int64_t start = clock_.NowNs();
    busy = batch_.Step();
    unsaved = true;
    WarnOfDrafters();
    std::erase_if(live_, [](const auto& one) { return one.second->ended(); });
    const std::lock_guard lock(mutex_);
    counters_.live = static_cast<int64_t>(batch_.live());
    counters_.seconds_busy += SecondsBetween(start, clock_.NowNs());
    ++counters_.steps;
    counters_.drafts_tried = batch_.drafts_tried();
    counters_.drafts_right = batch_.drafts_right();
    counters_.drafters_silent = batch_.drafters_silent();
  }
  const Error stopped(ErrorCode::kCancelled, "the server is stopping");
  batch_.EndAll(stopped);
  live_.clear();
  std::vector<std::unique_ptr<Waiting>> rest;
  {
    const std::lock_guard lock(mutex_);
    while (std::unique_ptr<Waiting> next = NextWaiting()) rest.push_back(std::move(next));
    counters_.live = 0;
  }
  EndWaiting(std::move(rest), Failure(stopped));
  for (const int64_t start = clock_.NowNs(); SecondsBetween(start, clock_.NowNs()) < kSaveSecondsAtEnd;)
    if (!SavePrefix()) break;
}

void GenerationService::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    // A step of one request looks at that request's own flag.
    for (const std::shared_ptr<CancelSource>& cancel : live_cancels_) cancel->Cancel();
    wake_.notify_one();
  }
  stop_step_.Cancel();
  if (thread_.joinable()) thread_.join();
}

ServiceCounters GenerationService::counters() const {
  const std::lock_guard lock(mutex_);
  ServiceCounters out = counters_;
  out.queued = queued_;
  out.new_tokens = new_tokens_;
  return out;
}

}  // namespace deltafin
