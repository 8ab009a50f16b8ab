// `deltafin serve`: the engine behind HTTP.
#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "app/commands.h"
#include "app/draft_setup.h"
#include "app/engine_setup.h"
#include "app/exit_code.h"
#include "app/option_checks.h"
#include "app/sampling_options.h"
#include "app/text_model.h"
#include "base/units.h"
#include "checkpoint/hex.h"
#include "server/server.h"

namespace deltafin {
namespace {

constexpr int64_t kPrefixes = 16;

struct ServeOptions {
  CommonOptions common;
  SamplingOptions sampling;
  ServerOptions server;
  std::string api_key_file, max_body = "32MiB", model_name;
  std::string keep_prefixes = "16GB";
  bool allow_remote = false;
  int64_t parallel = 4;
};

// The folder's name.
std::string NameOf(const std::string& model) {
  std::filesystem::path path = std::filesystem::path(model).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  const std::string name = path.filename().string();
  return name.empty() || name == "." || name == ".." ? "deltafin" : name;
}

Result<uint64_t> ParseMaxBody(const std::string& text) {
  Result<uint64_t> size = ParseSize(text);
  if (!size) return FailWith(std::move(size), "--max-body");
  return size;
}

// Where beginnings of conversations are kept over restarts. Null: nowhere.
Result<std::unique_ptr<PrefixFiles>> OpenPrefixFiles(const ServeOptions& o, EngineSetup& setup) {
  Result<uint64_t> size = ParseSize(o.keep_prefixes);
  if (!size) return FailWith(std::move(size), "--keep-prefixes");
  DFIN_TRY(const EngineOptions options, o.common.ToEngineOptions());
  if (*size == 0 || options.state_dir.empty() || setup.engine->plan().prefix_cache_bytes == 0)
    return std::unique_ptr<PrefixFiles>();
  const SnapshotIdentity identity{setup.engine->checkpoint().fingerprint(), setup.engine->backend_name()};
  const std::string folder =
      (std::filesystem::path(options.state_dir) / "prefixes" / ToHex(identity.fingerprint)).string();
  DFIN_TRY(const Session like, setup.engine->NewSession());
  Result<PrefixFiles> files = PrefixFiles::Open(folder, identity, like, *size, setup.logger);
  if (files) return std::make_unique<PrefixFiles>(std::move(*files));
  setup.logger.Warn(Cat("beginnings of conversations are not kept over restarts: ", files.error().message()));
  return std::unique_ptr<PrefixFiles>();
}

Status Complete(ServeOptions* o) {
  ServerOptions& server = o->server;
  if (!o->api_key_file.empty()) {
    DFIN_TRY(server.access.keys, ReadKeys(o->api_key_file));
  }
  server.access.loopback = IsLoopback(server.host);
  if (!server.access.loopback && server.access.keys.empty() && !o->allow_remote)
    return Fail(ErrorCode::kInvalidArgument, "--host ", server.host,
                ": others could use this server: give --api-key-file, or --allow-remote-without-key if that is wanted");
  if (o->allow_remote && !server.access.keys.empty())
    return Fail(ErrorCode::kInvalidArgument, "--allow-remote-without-key, --api-key-file: give one of them");
  DFIN_TRY(server.http.body_bytes, ParseMaxBody(o->max_body));
  server.model_name = o->model_name.empty() ? NameOf(o->common.model) : o->model_name;
  server.version = DELTAFIN_VERSION;
  server.service.live = o->parallel;
  DFIN_TRY(const SamplingParams defaults, ModelSamplingDefaults(o->common.model));
  if (o->sampling.seed)
    return Fail(ErrorCode::kInvalidArgument, "--seed: each request has its own: send it as \"seed\"");
  DFIN_TRY(server.defaults, o->sampling.Resolve(defaults));
  return {};
}

Result<int> RunServe(ServeOptions& o) {
  DFIN_TRY_VOID(Complete(&o));
  EngineSetup setup(/*end_after=*/2);
  DFIN_TRY(const TextModel text, LoadTextModel(o.common.model));
  DFIN_TRY(const DraftBridge draft_bridge, LoadDraftBridge(o.common, text.tokenizer, /*raw=*/false));
  DFIN_TRY_VOID(setup.Open(o.common, {.tokenizer_bytes = text.bytes,
                                      .prefix_checkpoints = kPrefixes,
                                      .sequences = o.parallel,
                                      .generates = true,
                                      .draft_bridge = draft_bridge}));
  setup.StopProgress();
  DFIN_TRY(const std::unique_ptr<PrefixFiles> prefixes, OpenPrefixFiles(o, setup));
  DFIN_TRY(const std::unique_ptr<Drafting> drafting, MakeDrafting(*setup.engine, text.tokenizer.get(), nullptr));
  Server server(*setup.engine, setup.monitor, *text.tokenizer, o.server,
                {prefixes.get(), drafting.get(), &setup.logger});
  DFIN_TRY_VOID(server.Start());
  const std::string host = o.server.host.find(':') == std::string::npos ? o.server.host : "[" + o.server.host + "]";
  setup.terminal.WriteNote(Cat("deltafin: ", o.server.model_name, " at http://", host, ":", server.port(), "/ (",
                               setup.engine->Describe(), ", ", o.parallel, " at once)\n"));
  while (!setup.interrupt.happened()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (!o.common.quiet) setup.terminal.WriteNote("deltafin: stopping\n");
  server.Stop();
  return kExitDone;
}

void AddLimits(CLI::App& app, ServeOptions& o) {
  ServerOptions& server = o.server;
  const auto positive = [](const std::string& text) { return CheckWhole(text, 1); };
  app.add_option("--parallel", o.parallel, "Requests that are answered at once (default 4)")->check(positive);
  app.add_option("--max-queue", server.service.queue, "Requests that may wait; beyond them 429 (default 64)")
      ->check([](const std::string& text) { return CheckWhole(text, 0); });
  app.add_option("--max-queue-per-client", server.service.per_client,
                 "Of them, those of one API key or address (default 32)")
      ->check(positive);
  app.add_option("--max-connections", server.http.connections, "Open connections; beyond them 503 (default 256)")
      ->check(positive);
  app.add_option("--keep-prefixes", o.keep_prefixes,
                 "Beginnings of conversations kept in the state folder over restarts; 0B: none (default 16GB)")
      ->type_name("SIZE");
  app.add_option("--max-body", o.max_body, "Largest request body (default 32MiB)")->type_name("SIZE");
  app.add_option("--max-messages", server.request.messages, "Messages of a request (default 4096)")->check(positive);
  app.add_option("--max-tools", server.request.tools, "Tools of a request (default 512)")->check(positive);
}

}  // namespace

Command AddServe(CLI::App& root) {
  auto o = std::make_shared<ServeOptions>();
  CLI::App* app = root.add_subcommand("serve", "Answer OpenAI- and Anthropic-style requests over HTTP");
  o->common.AddTo(*app);
  o->sampling.AddTo(*app);
  app->add_option("--host", o->server.host, "Address to listen on (default 127.0.0.1)")->type_name("ADDRESS");
  app->add_option("--port", o->server.port, "Port; 0 takes a free one (default 8000)")->check(CLI::Range(0, 65535));
  app->add_option("--model-name", o->model_name, "The model's name in the API (default: the folder's)")
      ->type_name("NAME");
  app->add_option("--api-key-file", o->api_key_file, "Keys, one a line; requests must carry one")->type_name("FILE");
  app->add_flag("--allow-remote-without-key", o->allow_remote, "Let a host that is not loopback do without keys");
  app->add_option("--cors", o->server.access.origins, "An origin whose pages may ask (repeatable; * is any)")
      ->type_name("ORIGIN");
  AddLimits(*app, *o);
  return {app, [o] { return RunServe(*o); }};
}

}  // namespace deltafin
