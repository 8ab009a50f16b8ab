// Engine: everything that turns tokens into logits, built from options: checkpoint, drives, dense weights, expert
// cache, backend, model. The composition root; it owns all of them.
//
// Knows tokens, not text. Steps are all or nothing (engine/session.h). Thread rule: one thread at a time (the engine
// thread); the monitor may be read by others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/registry.h"
#include "base/cancel.h"
#include "base/log.h"
#include "base/result.h"
#include "checkpoint/remote_files.h"
#include "checkpoint/streamed_experts.h"
#include "draft/draft_kind.h"
#include "draft/dspark_drafter.h"
#include "draft/qwen_drafter.h"
#include "engine/engine_options.h"
#include "engine/forecast.h"
#include "engine/memory_plan.h"
#include "engine/monitor.h"
#include "engine/session.h"
#include "io/io_scheduler.h"
#include "model/activation_tap.h"
#include "model/forward.h"
#include "model/kda_replay.h"

namespace deltafin {

// What an engine needs from outside. The references and pointers outlive it.
struct EngineContext {
  const std::vector<BackendFactory>& backends;
  EngineMonitor& monitor;
  Logger& logger;
  CancelToken cancel;  // ends loading
  // Called before anything large is read: shows the plan, and may refuse what it would be read for.
  std::function<Status(const ModelSpec&, const MemoryPlan&)> on_plan;
  // Replaces the I/O engine that the options name. For tests.
  std::function<Result<std::unique_ptr<IoEngine>>()> io_engine;
  // Changes the scheduler's options (chunks, window, hang limits) before it starts. For tests and benchmarks.
  std::function<void(IoSchedulerOptions&)> tune_io = {};
  // Puts something around the backend that the options name. For benchmarks.
  std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)> wrap_backend = {};
  // Where the experts of a streamed model come from; without it such a model needs StreamOptions::offline.
  RemoteFilesFactory remote_files = {};
};

struct EngineCounters {
  uint64_t layer_passes = 0;
  uint64_t experts_distinct = 0;     // summed over layers and steps
  uint64_t record_bytes = 0;         // payload of one expert
  uint64_t expert_bytes_demand = 0;  // payload
  // Payload read before a layer asked for it: wanted then (late: not wholly there by then; part of useful), or not.
  // What was read of prefetches that were cancelled on their way counts as wasted.
  uint64_t expert_bytes_prefetch_useful = 0;
  uint64_t expert_bytes_prefetch_late = 0;
  uint64_t expert_bytes_prefetch_wasted = 0;
  uint64_t expert_bytes_warm = 0;  // payload read by the warm start; in none of the others
  // Experts that layers wanted whose router had been asked one layer before, and those that it had named.
  uint64_t lookahead_wanted = 0;
  uint64_t lookahead_predicted = 0;
  uint64_t dense_bytes_loaded = 0;    // payload of the resident weights, read once
  uint64_t dense_bytes_streamed = 0;  // payload, for steps
  uint64_t cache_hits = 0;
  uint64_t cache_misses = 0;
  uint64_t reads_verified = 0;    // with verify_reads: records whose checksum was right
  uint64_t reads_mismatched = 0;  // records that came with another checksum and were read again
  double expert_wait_seconds = 0;
  double dense_wait_seconds = 0;
  FetchCounters fetch;  // of experts that came over the network
  IoCounters io;

  // What happened since `earlier`; record_bytes stays.
  EngineCounters Since(const EngineCounters& earlier) const;
};

struct DriveReport {
  DriveInfo info;
  DriveCounters counters;
};

// What was guessed about one layer's experts before it came to them, since the engine was made.
struct LayerLookahead {
  int32_t layer = 0;
  uint64_t wanted = 0;      // experts that the layer wanted after its router had been asked one layer before
  uint64_t predicted = 0;   // of those, named by it
  uint64_t read_ahead = 0;  // guesses that were thought worth a read
  uint64_t wrong = 0;       // of those, not wanted

  LayerLookahead Since(const LayerLookahead& earlier) const;
};

// Refuses (kInvalidArgument) what Feed would refuse: an id outside the vocabulary, more tokens than there is room for.
Status CheckTokens(const ModelSpec& spec, std::span<const TokenId> tokens, int64_t used, int64_t capacity);

// While a prompt is read: chunks also end where the session's length is a multiple of `every`, and `reached` is called.
struct FeedStops {
  int64_t every = 0;
  std::function<Status()> reached;
};

// What one session contributes to a step: tokens that follow what it holds.
struct StepPart {
  Session* session = nullptr;
  std::span<const TokenId> tokens;  // not empty
};

class Engine {
 public:
  // An error comes within a few seconds of its cause, also when a drive hangs: see LetGo().
  static Result<std::unique_ptr<Engine>> Create(const EngineOptions& options, const EngineContext& context);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const ModelSpec& spec() const;
  const Checkpoint& checkpoint() const;
  // Of the layers' and the head's weights where they are packed, else 0: then they are as the release holds them.
  uint64_t packed_dense_bytes() const;
  const MemoryPlan& plan() const;
  // "cpu/avx512, 2 threads (pinned), uring", and with several memory nodes what was done about them.
  std::string Describe() const;

  // The backend's name, "cpu/avx512": the unit for which results are bit-identical.
  std::string backend_name() const;
  // Empty, with room for plan().context tokens.
  Result<Session> NewSession() const;

  // Feeds `tokens` in chunks. `logits` gets one row for each of the last logits.rows tokens (0 = none).
  // kInvalidArgument: an id outside the vocabulary, or more tokens than the session has room for; nothing is read then.
  // kIo, kCorrupt, kCancelled: the session holds the chunks that were finished.
  Status Feed(Session& session, std::span<const TokenId> tokens, const Rows& logits, CancelToken cancel,
              ActivationTap* tap = nullptr, const FeedStops* stops = nullptr);

  // What feeding so many tokens at once will read; Feed() tells the monitor.
  PromptForecast Forecast(int64_t tokens) const;

  // One step over `tokens`, the first of which follows what the session holds, with logits for each of them: [tokens,
  // vocab]. The session stays as it is: Accept() makes the first `rows` of them part of it, at most once and before
  // anything else happens to it, and the result is bit for bit what Feed() of those tokens gives. At most
  // plan().chunk and replay.max_rows() tokens. Errors: those of Feed.
  Status Try(Session& session, KdaReplay& replay, std::span<const TokenId> tokens, const Rows& logits,
             CancelToken cancel);
  Status Accept(Session& session, KdaReplay& replay, std::span<const TokenId> tokens, int64_t rows);

  // What drafts beside it; empty: the plan has no draft model.
  std::optional<DraftKind> draft_kind() const;
  // Of the draft model, which must be of that kind: for one conversation. See DsparkOptions.
  Result<std::unique_ptr<DsparkDrafter>> NewDsparkDrafter(int64_t usable_vocab, bool round_to_bf16 = true);
  // See DraftModel::NewQwen.
  Result<std::unique_ptr<QwenDrafter>> NewQwenDrafter(std::shared_ptr<const TokenBridge> bridge, int64_t most);

  // The expert cache is empty and has learned nothing, as after Create(), and so is what looks ahead; their counters
  // begin again. For benchmarks: what is measured next does not depend on what was before. Sessions stay as they are.
  // kOutOfMemory: the engine cannot be used any more.
  Status ForgetExperts();

  // Payload of weights read so far, asked for or not: counters() of what a step costs, without their price.
  uint64_t payload_bytes() const;

  // One pass for several sessions, each of which takes part once: their parts have at most plan().chunk tokens in all.
  // `logits` gets one row for each of the last logits.rows tokens of all. Errors as Feed's; no session is changed then.
  // `on_layer`: called before each layer, on this thread.
  Status Step(std::span<const StepPart> parts, const Rows& logits, CancelToken cancel,
              const std::function<void(int32_t layer)>& on_layer = {});

  EngineCounters counters() const;
  // Every layer with routed experts.
  std::vector<LayerLookahead> lookahead() const;
  // Every drive that weights are read from, and what it did so far.
  std::vector<DriveReport> drives() const;
  // A read is in flight: destroying the engine would wait for its drive.
  bool hangs() const;
  // For the end of a process: destroys the engine or, when a drive does not answer for two seconds, gives it up with
  // its memory, silenced.
  static void LetGo(std::unique_ptr<Engine> engine);

 private:
  struct Parts;
  class PartObservers;
  explicit Engine(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace deltafin
