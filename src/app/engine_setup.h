// engine_setup.h: what every command that computes does first: open the engine, with progress shown and the plan
// printed.
//
// Owns the pieces in the order in which they must die. Thread rule: main thread.
#pragma once

#include <memory>

#include "app/common_options.h"
#include "app/interrupt.h"
#include "app/progress_view.h"
#include "app/terminal.h"
#include "base/log.h"
#include "engine/engine.h"

namespace deltafin {

struct EngineSetup {
  Terminal terminal;
  Interrupt interrupt;
  Logger logger;
  EngineMonitor monitor;
  std::unique_ptr<ProgressView> view;  // null with --quiet
  std::unique_ptr<Engine> engine;
  double seconds_load = 0;

  // `end_after`: see Interrupt.
  explicit EngineSetup(int end_after = 2);
  ~EngineSetup();

  // `json`: progress as events on stdout. `tokenizer_bytes`: see EngineOptions.
  Status Open(const CommonOptions& options, bool json, uint64_t tokenizer_bytes);
};

}  // namespace deltafin
