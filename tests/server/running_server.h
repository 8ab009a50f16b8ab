// running_server.h: a server on k3-nano and a free port of this machine.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/server.h"
#include "support/engine_runs.h"

namespace deltafin::test {

class RunningServer {
 public:
  // Greedy unless a request says otherwise; the rest as given.
  // `kept`: a folder for beginnings of conversations.
  // `draft`: how answers that are alone are drafted; `drafter`: by this one instead.
  explicit RunningServer(ServerOptions options = {}, int64_t context = 2048, const std::string& kept = "",
                         DraftMode draft = DraftMode::kOff, std::unique_ptr<Drafter> drafter = nullptr) {
    static const Tokenizer tokenizer = Tokenizer::Load(NanoFolder()).value();
    engine_ = std::make_unique<OpenedEngine>(EngineOptions{.model = NanoFolder(),
                                                           .context = context,
                                                           .sequences = options.service.live,
                                                           .prefix_checkpoints = 8,
                                                           .draft = draft});
    options.port = 0;
    options.model_name = "k3-nano";
    options.version = "test";
    if (!kept.empty()) {
      const Session like = std::move(*(*engine_)->NewSession());
      Result<PrefixFiles> files = PrefixFiles::Open(
          kept, {(*engine_)->checkpoint().fingerprint(), (*engine_)->backend_name()}, like, 100 << 20, logger_);
      if (!files) std::abort();
      files_ = std::make_unique<PrefixFiles>(std::move(*files));
    }
    if (drafter != nullptr) {
      std::vector<std::unique_ptr<Drafter>> drafters;
      drafters.push_back(std::move(drafter));
      drafting_ = std::move(*Drafting::Create(**engine_, std::move(drafters), {.rows = 8}));
    } else if (draft != DraftMode::kOff)
      drafting_ = std::move(*Drafting::ForPlan(
          **engine_,
          {.first_special = tokenizer.base(), .usable_vocab = tokenizer.token_count(), .limits = {.always = true}}));
    server_ = std::make_unique<Server>(**engine_, engine_->monitor(), tokenizer, options,
                                       ServerExtras{files_.get(), drafting_.get(), &logger_});
    const Status started = server_->Start();
    if (!started) std::abort();
  }

  int port() const { return server_->port(); }
  Server& server() { return *server_; }
  std::vector<std::string> warnings() {
    const std::lock_guard lock(warnings_mutex_);
    return warnings_;
  }
  ServiceCounters counters() { return server_->service().counters(); }

 private:
  std::mutex warnings_mutex_;
  std::vector<std::string> warnings_;
  Logger logger_{[this](const std::string& line) {
    const std::lock_guard lock(warnings_mutex_);
    warnings_.push_back(line);
  }};
  std::unique_ptr<OpenedEngine> engine_;
  std::unique_ptr<PrefixFiles> files_;
  std::unique_ptr<Drafting> drafting_;
  std::unique_ptr<Server> server_;
};

}  // namespace deltafin::test
