#include "app/bench_arm_check.h"

#include "app/backend_table.h"
#include "app/draft_bridge.h"
#include "app/draft_setup.h"
#include "app/stream_options.h"
#include "base/log.h"
#include "engine/engine.h"

namespace deltafin {
namespace {

Status CheckPrompts(const ModelSpec& spec, const std::vector<BenchPrompt>& prompts, int64_t context) {
  for (const BenchPrompt& prompt : prompts) {
    DFIN_TRY_VOID(CheckTokens(spec, prompt.ids, 0, context));
    // The last new token is not fed.
    const int64_t most = static_cast<int64_t>(prompt.ids.size()) + prompt.lengths.back() - 1;
    if (most > context)
      return Fail(ErrorCode::kInvalidArgument, "--context ", context, ": expected at least ", most, " for ",
                  CaseName(prompt.name, prompt.lengths.back()));
  }
  return {};
}

Status CheckOpens(CommonOptions settings, const std::vector<BenchPrompt>& prompts, CancelToken cancel) {
  settings.no_state = true;
  settings.state_dir.clear();
  DFIN_TRY(EngineOptions options, settings.ToEngineOptions());
  DFIN_TRY_VOID(SetDraftOptions(settings, /*generates=*/true, &options));
  Logger logger([](const std::string&) {});  // the runs warn
  DFIN_TRY(const DraftBridge bridge, LoadDraftBridge(settings, nullptr, /*raw=*/true));
  if (!bridge.left_out.empty()) options.draft_model.clear();
  options.tokenizer_bytes = bridge.bytes;
  EngineMonitor monitor;
  bool planned = false;
  const auto on_plan = [&](const ModelSpec& spec, const MemoryPlan& plan) -> Status {
    DFIN_TRY_VOID(CheckPrompts(spec, prompts, plan.context));
    planned = true;
    return Fail(ErrorCode::kCancelled, "checked");
  };
  const Result<std::unique_ptr<Engine>> engine = Engine::Create(options, {.backends = LinkedBackends(),
                                                                          .monitor = monitor,
                                                                          .logger = logger,
                                                                          .cancel = cancel,
                                                                          .on_plan = on_plan,
                                                                          .io_engine = {},
                                                                          .tune_io = {},
                                                                          .wrap_backend = {},
                                                                          .remote_files = HubOf(settings, logger)});
  if (planned || engine) return {};
  return Failure(engine.error());
}

}  // namespace

Status CheckArmsOpen(const BenchArms& arms, const std::vector<BenchPrompt>& prompts, const Interrupt& interrupt) {
  for (size_t i = 0; i < arms.arms.size(); ++i) {
    const Status opens = CheckOpens(arms.settings[i], prompts, interrupt.token());
    if (opens) continue;
    const std::string whose = arms.arms[i].arguments.empty() ? "" : "--arm " + arms.arms[i].name + ": ";
    return Fail(opens.error().code(), whose, opens.error().message());
  }
  return {};
}

}  // namespace deltafin
