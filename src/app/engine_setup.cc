#include "app/engine_setup.h"

#include "app/backend_table.h"
#include "app/draft_setup.h"
#include "app/stream_options.h"

namespace deltafin {

EngineSetup::EngineSetup(int end_after)
    : interrupt(end_after), logger([this](const std::string& message) {
        terminal.EndLine();
        terminal.WriteNote("deltafin: warning: " + message + "\n");
      }) {}

EngineSetup::~EngineSetup() {
  StopProgress();
  Engine::LetGo(std::move(engine));
}

void EngineSetup::StopViews() {
  view.reset();
  json_view.reset();
  watch_view.reset();
}

void EngineSetup::StopProgress() {
  StopViews();
  terminal.EndLine();
}

Status EngineSetup::Open(const CommonOptions& options, const Request& request) {
  DFIN_TRY(EngineOptions engine_options, options.ToEngineOptions());
  DFIN_TRY_VOID(SetDraftOptions(options, request.generates, &engine_options));
  if (!request.draft_bridge.left_out.empty()) {
    logger.Warn(request.draft_bridge.left_out + ": goes on without it");
    engine_options.draft_model.clear();
  }
  engine_options.tokenizer_bytes = request.tokenizer_bytes + request.draft_bridge.bytes;
  engine_options.usage_counts = request.usage_counts;
  engine_options.result_logit_rows = request.result_logit_rows;
  engine_options.result_tap_rows = request.result_tap_rows;
  engine_options.prefix_checkpoints = request.prefix_checkpoints;
  engine_options.sequences = request.sequences;
  if (request.json) json_view = std::make_unique<ProgressView>(monitor, terminal, ProgressView::Mode::kJson);
  if (request.watch && !terminal.stderr_is_terminal())
    return Fail(ErrorCode::kInvalidArgument,
                "--watch: expected a terminal on stderr, got something else: leave it out, or "
                "use --stats");
  if (request.watch) watch_view = std::make_unique<WatchView>(monitor, terminal);
  if (!request.watch && !options.quiet && (!request.json || terminal.stderr_is_terminal()))
    view = std::make_unique<ProgressView>(monitor, terminal, ProgressView::Mode::kText);
  const SteadyClock clock;
  const int64_t start = clock.NowNs();
  const auto on_plan = [&](const ModelSpec& spec, const MemoryPlan& plan) -> Status {
    DFIN_TRY_VOID(CheckTokens(spec, request.prompt, 0, plan.context));
    if (!options.quiet) terminal.WriteNote(plan.Describe());
    return {};
  };
  DFIN_TRY(engine, Engine::Create(engine_options, {.backends = LinkedBackends(),
                                                   .monitor = monitor,
                                                   .logger = logger,
                                                   .cancel = interrupt.token(),
                                                   .on_plan = on_plan,
                                                   .io_engine = {},
                                                   .tune_io = {},
                                                   .wrap_backend = request.wrap_backend,
                                                   .remote_files = HubOf(options, logger)}));
  seconds_load = SecondsBetween(start, clock.NowNs());
  monitor.Enter(Phase::kIdle, 0, clock.NowNs());
  return {};
}

}  // namespace deltafin
