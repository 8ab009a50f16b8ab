// running_server.h: a server on k3-nano and a free port of this machine.
#pragma once

#include <memory>

#include "server/server.h"
#include "support/engine_runs.h"

namespace deltafin::test {

class RunningServer {
 public:
  // Greedy unless a request says otherwise; the rest as given.
  explicit RunningServer(ServerOptions options = {}, int64_t context = 2048) {
    static const Tokenizer tokenizer = Tokenizer::Load(NanoFolder()).value();
    engine_ = std::make_unique<OpenedEngine>(EngineOptions{
        .model = NanoFolder(), .context = context, .sequences = options.service.live, .prefix_checkpoints = 8});
    options.port = 0;
    options.model_name = "k3-nano";
    options.version = "test";
    server_ = std::make_unique<Server>(**engine_, engine_->monitor(), tokenizer, options);
    const Status started = server_->Start();
    if (!started) std::abort();
  }

  int port() const { return server_->port(); }
  Server& server() { return *server_; }
  ServiceCounters counters() { return server_->service().counters(); }

 private:
  std::unique_ptr<OpenedEngine> engine_;
  std::unique_ptr<Server> server_;
};

}  // namespace deltafin::test
