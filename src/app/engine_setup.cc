#include "app/engine_setup.h"

#include "app/backend_table.h"

namespace deltafin {

EngineSetup::EngineSetup(int end_after)
    : interrupt(end_after), logger([this](const std::string& message) {
        terminal.EndLine();
        terminal.WriteNote("deltafin: warning: " + message + "\n");
      }) {}

EngineSetup::~EngineSetup() {
  view.reset();
  terminal.EndLine();
}

Status EngineSetup::Open(const CommonOptions& options, bool json, uint64_t tokenizer_bytes) {
  DFIN_TRY(EngineOptions engine_options, options.ToEngineOptions());
  engine_options.tokenizer_bytes = tokenizer_bytes;
  if (json || !options.quiet)
    view =
        std::make_unique<ProgressView>(monitor, terminal, json ? ProgressView::Mode::kJson : ProgressView::Mode::kText);
  const SteadyClock clock;
  const int64_t start = clock.NowNs();
  const auto on_plan = [&](const MemoryPlan& plan) {
    if (!options.quiet) terminal.WriteNote(plan.Describe());
  };
  DFIN_TRY(engine, Engine::Create(engine_options, {.backends = LinkedBackends(),
                                                   .monitor = monitor,
                                                   .logger = logger,
                                                   .cancel = interrupt.token(),
                                                   .on_plan = on_plan,
                                                   .io_engine = {}}));
  seconds_load = SecondsBetween(start, clock.NowNs());
  monitor.Enter(Phase::kIdle, 0, clock.NowNs());
  return {};
}

}  // namespace deltafin
