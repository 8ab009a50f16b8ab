// Server: an engine behind HTTP: routes, access, limits, start and graceful stop.
//
// Owns the engine thread (generation_service.h) and the connections (http_server.h). The engine is the caller's and
// outlives it. Start() returns when requests are accepted; Stop() ends within seconds: streams that are not finished
// get an error event. Thread rule: created, started and stopped on one thread. Errors: kUnavailable (address in use).
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "engine/prefix_cache.h"
#include "server/access.h"
#include "server/generation_service.h"
#include "server/http_server.h"
#include "server/server_context.h"
#include "text/tokenizer.h"

namespace deltafin {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string model_name;
  std::string version;
  SamplingParams defaults;
  AccessOptions access;
  HttpLimits http;
  RequestLimits request;
  ServiceLimits service;
  double comment_seconds = 5;
};

// What a server may have besides; null: it does without.
struct ServerExtras {
  PrefixFiles* files = nullptr;  // where beginnings of conversations are kept over restarts
  Drafting* drafting = nullptr;  // of answers that are alone
  Logger* logger = nullptr;
};

class Server {
 public:
  // References and pointers outlive it.
  Server(Engine& engine, EngineMonitor& monitor, const Tokenizer& tokenizer, const ServerOptions& options,
         const ServerExtras& extras = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Status Start();
  void Stop();
  int port() const { return http_.port(); }
  GenerationService& service() { return service_; }

 private:
  using Endpoint = HttpResponse (*)(const ServerContext&, const struct ApiRequest&);
  void AddRoutes();
  void AddPost(const std::string& path, Endpoint endpoint);
  void AddGet(const std::string& path, Endpoint endpoint);
  void AddOptions(const std::string& path);
  HttpResponse ServePost(const HttpRequest& request, Endpoint endpoint);
  HttpResponse Finished(const HttpRequest& request, HttpResponse response);

  const ServerOptions options_;
  const Access access_;
  const TokenOrder token_order_;
  PrefixCache prefixes_;
  GenerationService service_;
  const ServerContext context_;
  HttpServer http_;
  std::atomic<bool> ready_{false};
  bool stopped_ = false;
};

}  // namespace deltafin
