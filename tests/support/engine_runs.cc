#include "support/engine_runs.h"

#include <algorithm>
#include <cstdio>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "support/test_data.h"

namespace deltafin::test {
namespace {

const std::vector<BackendFactory>& Backends() {
  static const std::vector<BackendFactory> table = {{"cpu", CreateCpuBackend}, {"reference", CreateReferenceBackend}};
  return table;
}

EngineOptions WithDefaults(EngineOptions options) {
  if (options.threads == 0) options.threads = 2;
  return options;
}

}  // namespace

OpenedEngine::OpenedEngine(EngineOptions options, IoFactory io, TuneIo tune_io, WrapBackend wrap)
    : logger_([this](const std::string& warning) {
        const std::lock_guard lock(warnings_mutex_);
        warnings_.push_back(warning);
      }),
      engine_(Engine::Create(WithDefaults(std::move(options)), {.backends = Backends(),
                                                                .monitor = monitor_,
                                                                .logger = logger_,
                                                                .cancel = {},
                                                                .on_plan = {},
                                                                .io_engine = std::move(io),
                                                                .tune_io = std::move(tune_io),
                                                                .wrap_backend = std::move(wrap)})) {
  if (!engine_) std::fprintf(stderr, "engine: %s\n", engine_.error().message().c_str());
}

std::string NanoFolder() { return RepoPath("models/k3-nano"); }
std::string MicroFolder() { return RepoPath("tests/data/k3-micro"); }

std::vector<std::string> UsableIsas() {
  std::vector<std::string> usable;
  for (const char* isa : {"avx2", "avx512", "avx512_vnni", "neon"})
    if (CreateCpuBackend({.device = "cpu", .isa = isa, .threads = 1})) usable.push_back(isa);
  return usable;
}

Result<std::vector<float>> AllLogits(Engine& engine, Session& session, const std::vector<TokenId>& tokens,
                                     const std::vector<int64_t>& pieces) {
  const int64_t vocab = engine.spec().vocab_size;
  std::vector<float> logits(tokens.size() * static_cast<size_t>(vocab));
  size_t piece = 0;
  for (int64_t at = 0; at < static_cast<int64_t>(tokens.size());) {
    const int64_t rows =
        std::min(pieces[std::min(piece++, pieces.size() - 1)], static_cast<int64_t>(tokens.size()) - at);
    DFIN_TRY_VOID(engine.Feed(session, std::span(tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(rows)),
                              Rows(logits.data() + at * vocab, rows, vocab), {}));
    at += rows;
  }
  return logits;
}

}  // namespace deltafin::test
