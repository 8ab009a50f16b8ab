// engine_setup.h: what every command that computes does first: open the engine, with progress shown and the plan
// printed.
//
// Owns the pieces in the order in which they must die. Thread rule: main thread.
#pragma once

#include <functional>
#include <memory>

#include "app/common_options.h"
#include "app/draft_bridge.h"
#include "app/interrupt.h"
#include "app/progress_view.h"
#include "app/terminal.h"
#include "app/watch_view.h"
#include "base/log.h"
#include "engine/engine.h"

namespace deltafin {

struct EngineSetup {
  Terminal terminal;
  Interrupt interrupt;
  Logger logger;
  EngineMonitor monitor;
  std::unique_ptr<ProgressView> view;       // null with --quiet
  std::unique_ptr<ProgressView> json_view;  // with --json
  std::unique_ptr<WatchView> watch_view;    // with --watch, in the place of view
  std::unique_ptr<Engine> engine;
  double seconds_load = 0;

  // `end_after`: see Interrupt.
  explicit EngineSetup(int end_after = 2);
  ~EngineSetup();

  // Before the last lines are written; the second leaves the cursor on a new line.
  void StopViews();
  void StopProgress();

  struct Request {
    bool json = false;             // progress as events on stdout too
    bool watch = false;            // kInvalidArgument where stderr is not a terminal
    uint64_t tokenizer_bytes = 0;  // these five: see EngineOptions
    int64_t result_logit_rows = 0;
    int64_t result_tap_rows = 0;
    int64_t prefix_checkpoints = 0;
    int64_t sequences = 1;
    std::span<const TokenId> prompt = {};  // refused before anything large is read, if it cannot be fed
    bool usage_counts = true;              // see EngineOptions
    bool generates = false;                // tokens: drafting is of use
    DraftBridge draft_bridge = {};             // its bytes are counted here, beside tokenizer_bytes
    // See EngineContext.
    std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)> wrap_backend = {};
  };
  Status Open(const CommonOptions& options, const Request& request);
};

}  // namespace deltafin
