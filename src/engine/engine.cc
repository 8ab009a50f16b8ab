#include "engine/engine.h"

#include <algorithm>
#include <mutex>
#include <thread>

#include "base/interleave_scope.h"
#include "base/machine.h"
#include "base/platform.h"
#include "base/topology.h"
#include "base/units.h"
#include "cache/eviction_policy.h"
#include "engine/draft_model.h"
#include "engine/weight_files.h"

namespace deltafin {
namespace {

// Request tables, ring and thread stacks of the readers.
constexpr uint64_t kIoBytes = 4u << 20;

DraftKind KindOf(DraftMode named) { return named == DraftMode::kQwen ? DraftKind::kQwen : DraftKind::kDspark; }

// How long the end of a process waits for reads in flight.
constexpr double kPatienceSeconds = 2;

// Slots for prefetched experts: at most those of so many layers of one token.
constexpr int64_t kMostLayersAhead = 2;

// Experts that a warm start reads at once. How many bytes of them are in flight is the scheduler's business.
constexpr int64_t kWarmAtOnce = 4;

// Reads in flight at once that the readers have room for.
constexpr int kLeastDepth = 64;
constexpr int kDepthPerDrive = 16;  // ... and as many again for one drive that is ahead

}  // namespace

struct Engine::Parts {
  EngineMonitor* monitor = nullptr;
  SteadyClock clock;
  WeightFiles files;
  MemoryPlan plan;
  std::unique_ptr<Backend> backend;
  int threads = 1;
  bool pinned = false;
  std::string nodes;  // of memory: InterleaveScope::description
  std::mutex logger_mutex;
  Logger* logger = nullptr;  // null once nobody listens
  std::unique_ptr<IoScheduler> io;
  std::unique_ptr<TensorStore> dense;
  std::unique_ptr<ExpertStore> store;
  std::unique_ptr<StreamedExperts> streamed;  // null: every expert is on disk
  std::unique_ptr<ExpertUsage> usage;
  std::string usage_folder;  // "": not kept
  bool prefetch = true;
  DType kv_dtype = DType::kF32;
  std::shared_ptr<MlaPagePool> latents;         // of all sessions
  std::function<void(int32_t layer)> on_layer;  // of the step in progress
  bool warm_start = false;
  std::unique_ptr<ExpertTraceWriter> trace;
  std::unique_ptr<ExpertCache> cache;
  std::unique_ptr<Model> model;
  std::unique_ptr<DraftModel> draft_model;  // null: there is none, or no room

  ~Parts() {
    monitor->SetSources(nullptr, nullptr);
    monitor->Enter(Phase::kIdle, 0, clock.NowNs());
    // Statistics: not worth an error.
    if (usage != nullptr && usage->total() > 0 && !usage_folder.empty()) (void)usage->Save(usage_folder);
  }

  const ModelSpec& spec() const { return files.checkpoint->spec(); }
  Status Open(const EngineOptions& options, const EngineContext& context);
  Status MakeBackend(const EngineOptions& options, const EngineContext& context, const Topology& topology);
  Status OpenFiles(const EngineOptions& options, const EngineContext& context);
  Status StartReaders(const EngineOptions& options, const EngineContext& context);
  void WarnDegraded(int32_t drive, const std::string& reason);
  Status OpenDraftModel(const EngineOptions& options, Logger& warnings);
  WorkspaceLimits Workspace(int64_t rows) const;
  Status MakePlan(const EngineOptions& options, Logger& warnings);
  Status Load(const EngineContext& context);
  Status MakeTrace(const std::string& path);
  Status MakeCache();
  void MakeModel(Activations activations);
  Status Pass(const StepBatch& batch, SessionObserver* observer = nullptr);
};

// A pass, after which nothing of a failed one is left in flight.
Status Engine::Parts::Pass(const StepBatch& batch, SessionObserver* observer) {
  monitor->SetStepRows(static_cast<uint64_t>(batch.rows()));
  if (observer != nullptr)
    model->on_output = [observer](int32_t layer, const ConstRows& sum) { observer->OnLayer(layer, sum); };
  Status stepped = Forward(*model, batch);
  model->on_output = {};
  if (stepped) return stepped;
  cache->DropPrefetches();
  if (trace != nullptr) trace->DropStep();
  return stepped;
}

Status Engine::Parts::OpenFiles(const EngineOptions& options, const EngineContext& context) {
  monitor->Enter(Phase::kOpen, 0, clock.NowNs());
  const auto progress = [this](uint64_t done, uint64_t total) {
    monitor->SetTotal(total);
    monitor->SetDone(done);
  };
  DFIN_TRY(files, WeightFiles::Open(options, context.logger, context.cancel, progress));
  monitor->SetLayers(static_cast<int32_t>(spec().layers.size()));
  return {};
}

Status Engine::Parts::StartReaders(const EngineOptions& options, const EngineContext& context) {
  std::unique_ptr<IoEngine> engine;
  if (context.io_engine) {
    DFIN_TRY(engine, context.io_engine());
  } else {
    std::string note;
    const auto drives = static_cast<int>(files.drives.size());
    DFIN_TRY(engine, CreateIoEngine({.kind = options.io, .depth = std::max(kLeastDepth, kDepthPerDrive * (drives + 1))},
                                    &note));
    if (!note.empty()) context.logger.WarnOnce(note);
  }
  logger = &context.logger;
  IoSchedulerOptions io_options;
  io_options.drives = files.drives;
  io_options.background_yields = true;
  io_options.on_degraded = [this](int32_t drive, const std::string& reason) { WarnDegraded(drive, reason); };
  if (context.tune_io) context.tune_io(io_options);
  io = std::make_unique<IoScheduler>(std::move(engine), std::move(io_options));
  monitor->SetSources(io.get(), nullptr);
  store = files.MakeStore(*io, options.verify_reads);
  DFIN_TRY(streamed, files.MakeStream(options, *store, context.remote_files, clock));
  return files.CheckModel(*io, context.cancel);
}

void Engine::Parts::WarnDegraded(int32_t drive, const std::string& reason) {
  const std::lock_guard lock(logger_mutex);
  if (logger == nullptr) return;
  logger->Warn(Cat("drive ", files.drives[static_cast<size_t>(drive)].name, " is degraded (", reason,
                   "): what other drives hold copies of is read from them until the end of this run"));
}

// Where it was not asked for by name, a draft model that cannot be used is no reason to refuse the whole.
Status Engine::Parts::OpenDraftModel(const EngineOptions& options, Logger& warnings) {
  if (options.draft_model.empty() || options.draft == DraftMode::kOff || options.draft == DraftMode::kNgram) return {};
  const bool by_name = options.draft != DraftMode::kAuto;
  Result<std::unique_ptr<DraftModel>> opened = DraftModel::Open(options.draft_model, spec());
  if (!opened && by_name) return FailWith(std::move(opened), "--draft-model");
  if (by_name && (*opened)->kind() != KindOf(options.draft))
    return Fail(ErrorCode::kUnsupported, "--draft-model ", options.draft_model, ": holds a ",
                (*opened)->kind() == DraftKind::kQwen ? "Qwen3 model: give --draft qwen, or leave --draft out"
                                                      : "DSpark drafter: give --draft dspark, or leave --draft out");
  if (!opened) {
    warnings.Warn(Cat("--draft-model: ", opened.error().message(), ": goes on without it"));
    return {};
  }
  draft_model = std::move(*opened);
  return {};
}

WorkspaceLimits Engine::Parts::Workspace(int64_t rows) const {
  const WorkspaceLimits own = WorkspaceFor(spec(), rows);
  return draft_model == nullptr ? own : Larger(own, draft_model->Workspace());
}

Status Engine::Parts::MakePlan(const EngineOptions& options, Logger& warnings) {
  const ModelSpec& spec = files.checkpoint->spec();
  MemoryFacts facts;
  facts.available = AvailableMemoryBytes();
  const uint64_t resident = ResidentBytes();
  facts.program = resident - std::min(resident, options.tokenizer_bytes);
  facts.slot_bytes = ExpertCache::SlotBytes(*store);
  facts.floor_slots = ExpertCache::Floor(spec.num_experts_per_token, files.copies());
  facts.unit_bytes = TensorStore::UnitBytes(files.dense_source());
  facts.embedding_bytes = TensorStore::EmbeddingBytes(*files.checkpoint);
  facts.dense_packed = files.dense != nullptr;
  facts.io_bytes = kIoBytes + (streamed == nullptr ? 0 : streamed->buffer_bytes());
  facts.huge_pages = GetsHugePages();
  facts.workspace_bytes = [&](int64_t rows) { return backend->WorkspaceBytes(Workspace(rows)); };
  facts.draft_needs_output_matrix = draft_model != nullptr && draft_model->needs_output_matrix();
  if (draft_model != nullptr)
    facts.draft_model_bytes = [&](int64_t context, int64_t rows) { return draft_model->Bytes(context, rows); };
  DFIN_TRY(plan, MemoryPlan::Make(options, spec, facts));
  if (!plan.draft_model) draft_model.reset();
  if (options.memory && *options.memory > facts.available)
    warnings.Warn(Cat("--memory ", FormatBytes(*options.memory), " is more than the ", FormatBytes(facts.available),
                      " that are available: expect swapping, or an end by the system"));
  return {};
}

Status Engine::Parts::Load(const EngineContext& context) {
  const ModelSpec& spec = files.checkpoint->spec();
  DFIN_TRY_VOID(backend->Reserve(Workspace(plan.chunk)));
  DFIN_TRY(Activations activations, Activations::Create(spec, plan.chunk));
  monitor->Enter(Phase::kLoad, plan.resident_dense_bytes, clock.NowNs());
  const auto progress = [this](uint64_t done, uint64_t total) {
    monitor->SetTotal(total);
    monitor->SetDone(done);
  };
  DFIN_TRY(dense, TensorStore::Create(files.dense_source(), *io, plan.residency, progress, context.cancel));
  if (draft_model != nullptr)
    DFIN_TRY_VOID(draft_model->Load(*dense, *backend, static_cast<int>(spec.layers.size()), context.cancel));
  DFIN_TRY_VOID(MakeCache());
  MakeModel(std::move(activations));
  return {};
}

void Engine::Parts::MakeModel(Activations activations) {
  model = std::make_unique<Model>(spec(), *backend, *dense, *cache, std::move(activations));
  model->on_layer = [this](int32_t layer) {
    monitor->SetLayer(layer);
    monitor->SetDenseWait(dense->wait_seconds());
    if (on_layer) on_layer(layer);
  };
  monitor->SetSources(io.get(), cache.get(), streamed.get());
}

Status Engine::Parts::MakeTrace(const std::string& path) {
  const ExpertTraceShape shape{static_cast<int32_t>(spec().layers.size()), static_cast<int32_t>(spec().num_experts),
                               static_cast<int32_t>(spec().num_experts_per_token), store->record_bytes()};
  Result<ExpertTraceWriter> writer = ExpertTraceWriter::Create(path, shape);
  if (!writer) return FailWith(std::move(writer), "--expert-trace");
  trace = std::make_unique<ExpertTraceWriter>(std::move(*writer));
  return {};
}

Status Engine::Parts::MakeCache() {
  const ModelSpec& model_spec = spec();
  const auto layers = static_cast<int32_t>(model_spec.layers.size());
  usage = std::make_unique<ExpertUsage>(layers, model_spec.num_experts, files.checkpoint->fingerprint());
  const bool known = !usage_folder.empty() && usage->Load(usage_folder);
  const bool warms = warm_start && !usage_folder.empty();
  const int64_t floor = ExpertCache::Floor(model_spec.num_experts_per_token, files.copies());
  const int64_t spare = std::max<int64_t>(plan.expert_slots - floor, 0);
  const int64_t prefetch_slots = std::min(spare / 2, kMostLayersAhead * model_spec.num_experts_per_token);
  ExpertSource& source = streamed == nullptr ? static_cast<ExpertSource&>(*store) : *streamed;
  DFIN_TRY(cache, ExpertCache::Create(source,
                                      {.slots = plan.expert_slots,
                                       .max_batch = model_spec.num_experts,
                                       .most_in_transit = ExpertCache::Transit(model_spec.num_experts_per_token),
                                       .prefetch_slots = prefetch ? prefetch_slots : 0,
                                       .usage = usage.get(),
                                       .trace = trace.get()},
                                      CreateFrequencyPolicy(
                                          {.slots = plan.expert_slots,
                                           .layers = layers,
                                           .experts = static_cast<int32_t>(model_spec.num_experts),
                                           .experts_per_token = static_cast<int32_t>(model_spec.num_experts_per_token),
                                           .prior = warms && known ? usage.get() : nullptr}),
                                      clock));
  if (!warms) return {};
  std::vector<int32_t> routed;
  for (int32_t layer = 0; layer < layers; ++layer)
    if (model_spec.layers[static_cast<size_t>(layer)].feed_forward != FeedForwardKind::kDense) routed.push_back(layer);
  std::vector<ExpertKey> warm = usage->MostUsed(routed, plan.expert_slots);
  // What is absent would end the warm start.
  if (streamed != nullptr) std::erase_if(warm, [&](ExpertKey key) { return !streamed->IsThere(key); });
  cache->Warm(std::move(warm), std::min(spare, kWarmAtOnce));
  return {};
}

Status Engine::Parts::MakeBackend(const EngineOptions& options, const EngineContext& context,
                                  const Topology& topology) {
  if (options.threads < 0 || options.threads > 1024)
    return Fail(ErrorCode::kInvalidArgument, "--threads ", options.threads, ": expected 1 to 1024");
  const ThreadPlacement placement = PlaceThreads(topology, options.threads);
  threads = placement.threads;
  BackendOptions wanted{.device = options.device, .isa = options.isa, .threads = threads};
  if (options.pin && threads > 1 && options.device != "reference") wanted.cpus = placement.cpus;
  Result<std::unique_ptr<Backend>> made = CreateBackend(context.backends, wanted);
  if (!made && !wanted.cpus.empty()) {
    wanted.cpus.clear();  // a container may refuse
    Result<std::unique_ptr<Backend>> again = CreateBackend(context.backends, wanted);
    if (again) context.logger.Warn(Cat(made.error().message(), ": threads run where the system puts them"));
    made = std::move(again);
  }
  DFIN_TRY(backend, std::move(made));
  if (context.wrap_backend) backend = context.wrap_backend(std::move(backend));
  pinned = !wanted.cpus.empty();
  return {};
}

Status Engine::Parts::Open(const EngineOptions& options, const EngineContext& context) {
  const Topology topology = MachineTopology();
  DFIN_TRY_VOID(MakeBackend(options, context, topology));
  // After the backend, whose workers keep their own memory near; the readers inherit it.
  const InterleaveScope interleave(topology.memory_nodes);
  nodes = interleave.description();
  if (!interleave.status()) context.logger.Warn(interleave.status().error().message());
  if (options.usage_counts) usage_folder = options.state_dir;
  prefetch = options.prefetch;
  kv_dtype = options.kv_dtype;
  warm_start = options.warm_start;
  DFIN_TRY_VOID(OpenFiles(options, context));
  latents = SequenceState::LatentPool(spec(), kv_dtype);
  DFIN_TRY_VOID(StartReaders(options, context));
  DFIN_TRY_VOID(OpenDraftModel(options, context.logger));
  DFIN_TRY_VOID(MakePlan(options, context.logger));
  if (context.on_plan) DFIN_TRY_VOID(context.on_plan(spec(), plan));
  if (!options.expert_trace.empty()) DFIN_TRY_VOID(MakeTrace(options.expert_trace));
  return Load(context);
}

Result<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options, const EngineContext& context) {
  auto parts = std::make_unique<Parts>();
  parts->monitor = &context.monitor;
  std::unique_ptr<Engine> engine(new Engine(std::move(parts)));
  Status opened = engine->parts_->Open(options, context);
  if (opened) return engine;
  LetGo(std::move(engine));  // a drive that hangs must not turn an error into a wait
  return Failure(std::move(opened.error()));
}

Status CheckTokens(const ModelSpec& spec, std::span<const TokenId> tokens, int64_t used, int64_t capacity) {
  for (const TokenId id : tokens)
    if (id < 0 || id >= spec.vocab_size)
      return Fail(ErrorCode::kInvalidArgument, "token id ", id, ": expected 0 to ", spec.vocab_size - 1);
  const auto count = static_cast<int64_t>(tokens.size());
  if (count <= capacity - used) return {};
  const std::string in_use = used == 0 ? "" : Cat(used, " are in use and ");
  const std::string advice = capacity < spec.max_position_embeddings
                                 ? Cat("raise --context (the model's limit is ", spec.max_position_embeddings, ")")
                                 : "it is the model's limit: shorten the prompt";
  return Fail(ErrorCode::kInvalidArgument, "context of ", capacity, " tokens: ", in_use, count,
              " were given: ", advice);
}

Engine::Engine(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Engine::~Engine() = default;

const ModelSpec& Engine::spec() const { return parts_->files.checkpoint->spec(); }
const Checkpoint& Engine::checkpoint() const { return *parts_->files.checkpoint; }
uint64_t Engine::packed_dense_bytes() const {
  return parts_->files.dense == nullptr ? 0 : parts_->files.dense->manifest().bytes();
}
const MemoryPlan& Engine::plan() const { return parts_->plan; }
std::string Engine::backend_name() const { return parts_->backend->name(); }

std::string Engine::Describe() const {
  const Parts& p = *parts_;
  return Cat(p.backend->name(), ", ", p.threads, p.threads == 1 ? " thread" : " threads",
             p.pinned ? " (pinned), " : ", ", p.io->engine_name(), p.nodes.empty() ? "" : ", " + p.nodes);
}

Result<Session> Engine::NewSession() const {
  const Parts& p = *parts_;
  DFIN_TRY(SequenceState state, SequenceState::Create(spec(), p.plan.context, p.kv_dtype, p.latents));
  return Session(std::move(state));
}

Status Engine::Feed(Session& session, std::span<const TokenId> tokens, const Rows& logits, CancelToken cancel,
                    ActivationTap* tap, const FeedStops* stops) {
  const auto count = static_cast<int64_t>(tokens.size());
  DFIN_TRY_VOID(CheckTokens(spec(), tokens, session.length(), session.capacity()));
  DFIN_CHECK(logits.rows <= count && (logits.rows == 0 || logits.width == spec().vocab_size),
             "logits of another shape");

  Model& model = *parts_->model;
  model.tap = tap;
  if (count > 1) parts_->monitor->SetForecast(Forecast(count));
  const int64_t first_logit = count - logits.rows;
  for (int64_t at = 0; at < count;) {
    int64_t rows = std::min(parts_->plan.chunk, count - at);
    if (stops != nullptr) rows = std::min(rows, stops->every - session.length() % stops->every);
    const Segment segment{&session.state_, 0, rows};
    StepBatch batch;
    batch.tokens = tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(rows));
    batch.segments = {&segment, 1};
    batch.logits_from = std::clamp(first_logit - at, int64_t{0}, rows);
    batch.logits = logits.Slice(std::max(at - first_logit, int64_t{0}), rows - batch.logits_from);
    batch.cancel = cancel;
    DFIN_TRY_VOID(parts_->Pass(batch, session.observer_));
    session.tokens_.insert(session.tokens_.end(), batch.tokens.begin(), batch.tokens.end());
    if (session.observer_ != nullptr) session.observer_->OnTokens(session.tokens_, rows, cancel);
    if (parts_->trace != nullptr) DFIN_TRY_VOID(parts_->trace->EndStep(rows));
    at += rows;
    if (count > 1) parts_->monitor->SetDone(static_cast<uint64_t>(at));
    if (stops != nullptr && session.length() % stops->every == 0) DFIN_TRY_VOID(stops->reached());
  }
  return {};
}

PromptForecast Engine::Forecast(int64_t tokens) const {
  const Parts& p = *parts_;
  ForecastFacts facts;
  facts.moe_layers = spec().num_moe_layers;
  facts.experts = spec().num_experts;
  facts.experts_per_token = spec().num_experts_per_token;
  facts.record_bytes = p.store->record_bytes();
  facts.slots = p.cache->slots();
  facts.resident = p.cache->resident();
  if (p.streamed != nullptr) facts.absent = p.streamed->absent();
  facts.chunk = p.plan.chunk;
  facts.streamed_dense_bytes = p.plan.streamed_dense_bytes;
  const std::vector<DriveInfo>& drives = p.files.drives;
  const auto first = static_cast<size_t>(p.files.set == nullptr ? 0 : p.files.first_set_drive);
  const size_t count =
      p.files.set == nullptr ? static_cast<size_t>(p.files.first_set_drive) : p.files.set->drives().size();
  for (size_t d = first; d < first + count; ++d) facts.expert_rates.push_back(drives[d].bytes_per_second);
  const auto dense = static_cast<size_t>(p.files.dense_drive);
  facts.dense_rate = drives[dense].bytes_per_second;
  facts.dense_apart = dense < first || dense >= first + count;
  return ForecastPrompt(facts, tokens);
}

Status Engine::Try(Session& session, KdaReplay& replay, std::span<const TokenId> tokens, const Rows& logits,
                   CancelToken cancel) {
  const auto rows = static_cast<int64_t>(tokens.size());
  DFIN_TRY_VOID(CheckTokens(spec(), tokens, session.length(), session.capacity()));
  DFIN_CHECK(rows >= 1 && rows <= std::min(parts_->plan.chunk, replay.max_rows()), "more rows than can be tried");
  DFIN_CHECK(logits.rows == rows && logits.width == spec().vocab_size, "logits of another shape");
  parts_->model->tap = nullptr;
  const Segment segment{&session.state_, 0, rows, &replay};
  StepBatch batch;
  batch.tokens = tokens;
  batch.segments = {&segment, 1};
  batch.logits = logits;
  batch.cancel = cancel;
  DFIN_TRY_VOID(parts_->Pass(batch, session.observer_));
  if (parts_->trace != nullptr) DFIN_TRY_VOID(parts_->trace->EndStep(rows));
  return {};
}

Status Engine::Accept(Session& session, KdaReplay& replay, std::span<const TokenId> tokens, int64_t rows) {
  const auto all = static_cast<int64_t>(tokens.size());
  DFIN_CHECK(rows >= 1 && rows <= all, "rows that were not tried");
  if (rows == all)
    session.state_.Commit(rows);
  else
    replay.Replay(*parts_->backend, session.state_, rows);
  const std::span<const TokenId> accepted = tokens.first(static_cast<size_t>(rows));
  session.tokens_.insert(session.tokens_.end(), accepted.begin(), accepted.end());
  if (session.observer_ != nullptr) session.observer_->OnTokens(session.tokens_, rows, {});
  return parts_->backend->Synchronize();
}

Result<std::unique_ptr<DsparkDrafter>> Engine::NewDsparkDrafter(int64_t usable_vocab, bool round_to_bf16) {
  DFIN_CHECK(draft_kind() == DraftKind::kDspark, "the plan has such a draft model");
  DsparkOptions options = DraftModel::Options(parts_->plan.context, parts_->plan.chunk);
  options.usable_vocab = usable_vocab;
  options.round_to_bf16 = round_to_bf16;
  return parts_->draft_model->NewDspark(options);
}

Result<std::unique_ptr<QwenDrafter>> Engine::NewQwenDrafter(std::shared_ptr<const TokenBridge> bridge, int64_t most) {
  DFIN_CHECK(draft_kind() == DraftKind::kQwen, "the plan has such a draft model");
  return parts_->draft_model->NewQwen(std::move(bridge), parts_->plan.context, most);
}

std::optional<DraftKind> Engine::draft_kind() const {
  if (parts_->draft_model == nullptr) return std::nullopt;
  return parts_->draft_model->kind();
}

// One after the other, so that there is never memory for two.
Status Engine::ForgetExperts() {
  Parts& p = *parts_;
  p.monitor->SetSources(p.io.get(), nullptr);
  Activations activations = std::move(p.model->a);
  p.model.reset();
  p.cache.reset();
  DFIN_TRY_VOID(p.MakeCache());
  p.MakeModel(std::move(activations));
  return {};
}

uint64_t Engine::payload_bytes() const {
  const ExpertCacheCounters& c = parts_->cache->counters();
  return c.demand_bytes + c.prefetch_useful_bytes + c.prefetch_wasted_bytes + parts_->dense->streamed_bytes();
}

// Shows each session's observer the rows of its part.
class Engine::PartObservers final : public SessionObserver {
 public:
  explicit PartObservers(std::span<const StepPart> parts) : parts_(parts) {}
  bool any() const {
    return std::any_of(parts_.begin(), parts_.end(), [](const StepPart& p) { return p.session->observer_ != nullptr; });
  }
  void OnLayer(int32_t layer, const ConstRows& sum) override {
    int64_t first = 0;
    for (const StepPart& part : parts_) {
      const int64_t rows = std::ssize(part.tokens);
      if (part.session->observer_ != nullptr) part.session->observer_->OnLayer(layer, sum.Slice(first, rows));
      first += rows;
    }
  }
  void OnTokens(std::span<const TokenId>, int64_t, CancelToken) override {}

 private:
  std::span<const StepPart> parts_;
};

Status Engine::Step(std::span<const StepPart> parts, const Rows& logits, CancelToken cancel,
                    const std::function<void(int32_t layer)>& on_layer) {
  std::vector<TokenId> tokens;
  std::vector<Segment> segments;
  for (const StepPart& part : parts) {
    DFIN_TRY_VOID(CheckTokens(spec(), part.tokens, part.session->length(), part.session->capacity()));
    segments.push_back({&part.session->state_, static_cast<int64_t>(tokens.size()), std::ssize(part.tokens)});
    tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
  }
  const int64_t rows = std::ssize(tokens);
  DFIN_CHECK(rows > 0 && rows <= parts_->plan.chunk && logits.rows <= rows, "a step of another size");
  parts_->model->tap = nullptr;
  StepBatch batch;
  batch.tokens = tokens;
  batch.segments = segments;
  batch.logits_from = rows - logits.rows;
  batch.logits = logits;
  batch.cancel = cancel;
  PartObservers observers(parts);
  parts_->on_layer = on_layer;
  const Status passed = parts_->Pass(batch, observers.any() ? &observers : nullptr);
  parts_->on_layer = {};
  if (!passed) return passed;
  for (const StepPart& part : parts) {
    Session& session = *part.session;
    session.tokens_.insert(session.tokens_.end(), part.tokens.begin(), part.tokens.end());
    if (session.observer_ != nullptr) session.observer_->OnTokens(session.tokens_, std::ssize(part.tokens), cancel);
  }
  return parts_->trace == nullptr ? Status() : parts_->trace->EndStep(rows);
}

std::vector<DriveReport> Engine::drives() const {
  const std::vector<DriveInfo>& infos = parts_->io->drives();
  const std::vector<DriveCounters> counters = parts_->io->drive_counters();
  std::vector<DriveReport> out;
  for (size_t i = 0; i < infos.size(); ++i) out.push_back({infos[i], counters[i]});
  return out;
}

bool Engine::hangs() const {
  if (parts_->io == nullptr) return false;
  if (parts_->cache != nullptr && parts_->cache->hung() > 0) return true;
  const std::vector<DriveCounters> drives = parts_->io->drive_counters();
  return std::any_of(drives.begin(), drives.end(), [](const DriveCounters& d) { return d.in_flight_bytes > 0; });
}

void Engine::LetGo(std::unique_ptr<Engine> engine) {
  const SteadyClock clock;
  const int64_t start = clock.NowNs();
  if (engine != nullptr && engine->parts_->cache != nullptr) {
    engine->parts_->cache->StopWarming();
    engine->parts_->cache->DropPrefetches();
  }
  while (engine != nullptr && engine->hangs() && SecondsBetween(start, clock.NowNs()) < kPatienceSeconds)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (engine == nullptr || !engine->hangs()) return;
  Parts& parts = *engine->parts_;
  {
    const std::lock_guard lock(parts.logger_mutex);
    parts.logger = nullptr;
  }
  parts.monitor->SetSources(nullptr, nullptr);
  LeaveBehind(engine.release());
}

std::vector<LayerLookahead> Engine::lookahead() const {
  std::vector<LayerLookahead> out;
  for (size_t l = 0; l < spec().layers.size(); ++l) {
    if (spec().layers[l].feed_forward == FeedForwardKind::kDense) continue;
    const auto layer = static_cast<int32_t>(l);
    const LookaheadCounters& c = parts_->model->lookahead.counters(layer);
    out.push_back({layer, c.wanted, c.predicted, c.admitted, c.wrong});
  }
  return out;
}

EngineCounters Engine::counters() const {
  const ExpertCacheCounters& c = parts_->cache->counters();
  EngineCounters out;
  out.layer_passes = parts_->model->layer_passes;
  out.experts_distinct = parts_->model->experts.distinct_total();
  out.record_bytes = parts_->store->record_bytes();
  out.expert_bytes_demand = c.demand_bytes;
  out.expert_bytes_warm = c.warm_bytes;
  out.dense_bytes_loaded = parts_->dense->loaded_bytes();
  out.dense_bytes_streamed = parts_->dense->streamed_bytes();
  out.cache_hits = c.hits;
  out.cache_misses = c.misses;
  const ExpertStoreCounters reads = parts_->store->counters();
  out.reads_verified = reads.verified;
  out.reads_mismatched = reads.mismatched;
  out.expert_wait_seconds = c.wait_seconds;
  out.dense_wait_seconds = parts_->dense->wait_seconds();
  if (parts_->streamed != nullptr) out.fetch = parts_->streamed->counters();
  out.io = parts_->io->counters();
  for (const LayerLookahead& layer : lookahead()) {
    out.lookahead_wanted += layer.wanted;
    out.lookahead_predicted += layer.predicted;
  }
  out.expert_bytes_prefetch_useful = c.prefetch_useful_bytes;
  out.expert_bytes_prefetch_late = c.prefetch_late_bytes;
  out.expert_bytes_prefetch_wasted = c.prefetch_wasted_bytes + out.io.cancelled_guess_bytes;
  return out;
}

}  // namespace deltafin
