// GenerationService: the engine thread of a server, and the bounded queue before it.
//
// Requests wait in one line per client; whenever one may become live, the next client's first one does. A group (the n
// answers of one request) is accepted whole or not at all. While nothing is to be done, what the prefix cache holds is
// written to its files, if it has some. Owns the thread that calls the engine; nobody else may use
// the engine meanwhile. What a request's events and filter belong to is kept alive until its OnEnd has returned.
// Thread-safe. Errors: kUnavailable (the queue is full), kCancelled (the server is stopping), and the batch's own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "engine/request_batch.h"

namespace deltafin {

struct QueuedRequest {
  BatchRequest request;
  std::shared_ptr<void> owner;           // of request.events and request.filter
  std::shared_ptr<CancelSource> cancel;  // whose token request.cancel is
};

struct ServiceLimits {
  int64_t live = 4;         // requests that are computed at once
  int64_t queue = 64;       // requests that wait
  int64_t per_client = 32;  // of them, of one client
};

// Since the service began, but for live and queued.
struct ServiceCounters {
  int64_t live = 0, queued = 0;
  uint64_t accepted = 0, refused = 0, completed = 0, cancelled = 0, failed = 0;
  uint64_t prompt_tokens = 0, prompt_tokens_read = 0, new_tokens = 0;
  double seconds_first_token = 0;       // sum over requests that had one
  uint64_t first_tokens = 0;            // their number
  double last_seconds_first_token = 0;  // of the newest
  double seconds_busy = 0;              // in steps
  uint64_t steps = 0;
  uint64_t drafts_tried = 0, drafts_right = 0;  // drafted tokens
  uint64_t drafters_silent = 0;                 // answers in which a drafter had nothing to go on
};

class GenerationService {
 public:
  // References outlive the service.
  // `drafting`: of answers that are alone; null: none are drafted. `logger` hears of files that could not be written
  // and of drafters that failed; null: nobody does.
  GenerationService(Engine& engine, EngineMonitor& monitor, PrefixCache& prefixes, const ServiceLimits& limits,
                    Drafting* drafting = nullptr, Logger* logger = nullptr);
  ~GenerationService();
  GenerationService(const GenerationService&) = delete;
  GenerationService& operator=(const GenerationService&) = delete;

  const Engine& engine() const { return engine_; }
  // Events come from the engine thread, the first ones perhaps before this returns.
  Status Submit(const std::string& client, std::vector<QueuedRequest> group);
  // Requests whose cancel token was set are looked for: those that wait end at once, live ones within a step.
  void NoteCancelled();
  // Ends everything that is live or waits, with kCancelled, and then the thread.
  void Stop();

  ServiceCounters counters() const;
  // Requests that would be served before a new one of another client.
  int64_t queued() const { return queued_; }
  const ServiceLimits& limits() const { return limits_; }

 private:
  struct Waiting;
  class Watched;

  void Loop();
  std::unique_ptr<Waiting> NextWaiting();
  void Admit(std::unique_ptr<Waiting> waiting);
  std::vector<std::unique_ptr<Waiting>> TakeCancelled();
  void EndWaiting(std::vector<std::unique_ptr<Waiting>> ended, const Result<BatchResult>& how);
  void Count(const Result<BatchResult>& result);
  // False: the service is stopping, no step may begin.
  bool NoteLive();
  // The first failure of each drafter, and of steps with drafts.
  void WarnOfDrafters();
  // One checkpoint. False: there is none to be written.
  bool SavePrefix();

  Engine& engine_;
  PrefixCache& prefixes_;
  Logger* const logger_;
  const ServiceLimits limits_;
  const Drafting* const drafting_;
  std::set<std::string> warned_of_;  // drafters; engine thread
  CancelSource stop_step_;
  RequestBatch batch_;  // engine thread
  const SteadyClock clock_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, std::deque<std::unique_ptr<Waiting>>> lines_;  // by client
  std::string last_client_;                                            // who was served last
  ServiceCounters counters_;
  std::atomic<int64_t> queued_{0};
  std::atomic<uint64_t> new_tokens_{0};
  bool stopping_ = false;
  bool look_for_cancelled_ = false;
  std::map<BatchEvents*, std::shared_ptr<Watched>> live_;    // engine thread
  std::vector<std::shared_ptr<CancelSource>> live_cancels_;  // under the lock: of what the next step computes
  std::thread thread_;
};

}  // namespace deltafin
