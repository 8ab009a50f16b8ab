// engine_runs.h: opens an engine on a folder with quiet defaults, for tests of whole passes.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace deltafin::test {

// An engine with everything it refers to. Options: two threads, no state folder, the rest as given.
class OpenedEngine {
 public:
  using IoFactory = std::function<Result<std::unique_ptr<IoEngine>>()>;

  using TuneIo = std::function<void(IoSchedulerOptions&)>;

  using WrapBackend = std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)>;

  explicit OpenedEngine(EngineOptions options, IoFactory io = {}, TuneIo tune_io = {}, WrapBackend wrap = {});

  // Aborts the test program with the message when the engine did not open; error() tells in time.
  Engine& operator*() { return *engine_.value(); }
  Engine* operator->() { return engine_.value().get(); }
  bool ok() const { return engine_.has_value(); }
  const Error& error() const { return engine_.error(); }
  // Nothing else of this object may be used afterwards.
  std::unique_ptr<Engine> Take() { return std::move(*engine_); }
  EngineMonitor& monitor() { return monitor_; }
  std::vector<std::string> warnings() const {
    const std::lock_guard lock(warnings_mutex_);
    return warnings_;
  }

 private:
  mutable std::mutex warnings_mutex_;
  std::vector<std::string> warnings_;
  EngineMonitor monitor_;
  Logger logger_;
  Result<std::unique_ptr<Engine>> engine_;
};

// Folders with expected values that the repository carries.
std::string NanoFolder();
std::string MicroFolder();

// "cpu" instruction sets that this processor has, in the spelling of --isa.
std::vector<std::string> UsableIsas();

// Logits of every token, fed in pieces of the given sizes (the last size repeats). Rows of vocab_size floats.
Result<std::vector<float>> AllLogits(Engine& engine, Session& session, const std::vector<TokenId>& tokens,
                                     const std::vector<int64_t>& pieces);

}  // namespace deltafin::test
