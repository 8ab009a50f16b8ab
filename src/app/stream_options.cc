#include "app/stream_options.h"

#include <CLI/CLI.hpp>

#include "base/json.h"
#include "base/units.h"
#include "checkpoint/stream_manifest.h"
#include "setup/hub_files.h"

namespace deltafin {
namespace {

constexpr uint64_t kMaxTokenBytes = 4096;
// Between tries, doubled each time: with the default number of tries an unreachable hub ends a run after half a minute.
constexpr double kFirstSeconds = 0.5;
constexpr int kAttempts = 7;

// The first option that says how experts are fetched; "": none does.
std::string NetworkOption(const CommonOptions& options) {
  if (!options.token_file.empty()) return "--token-file";
  if (!options.proxy.empty()) return "--proxy";
  if (!options.endpoint.empty()) return "--endpoint";
  if (options.check_twice) return "--check-twice";
  if (options.connections) return "--connections";
  return options.fetch_attempts ? "--fetch-attempts" : "";
}

}  // namespace

void AddCheckTwice(CLI::App& app, std::optional<std::string>& text) {
  app.add_option_function<std::vector<std::string>>(
         "--check-twice", [&text](const std::vector<std::string>& given) { text = given.empty() ? "" : given.back(); },
         "Fetch what has no listed checksum twice and compare: auto (unless over https), on or off; alone: on")
      ->type_name("WHEN")
      ->expected(0, 1);
}

void AddStreamOptions(CLI::App& app, CommonOptions& options) {
  app.add_flag("--offline", options.offline, "Fetch no experts over the network (see setup --dense-only)");
  app.add_option("--connections", options.connections, "Ranges of experts that are fetched at once (8)")
      ->check(CLI::Range(1, 64));
  app.add_option("--fetch-attempts", options.fetch_attempts,
                 "Tries in a row that bring nothing until a fetch has failed (7: about half a minute)")
      ->check(CLI::Range(1, 100));
  AddCheckTwice(app, options.check_twice);
  app.add_option("--keep-experts", options.keep_experts,
                 "Most bytes of fetched experts that stay on disk, the oldest make room (default: all stay)")
      ->type_name("SIZE");
  app.add_option("--endpoint", options.endpoint, "Hub to fetch experts from (default: where setup fetched from)")
      ->type_name("URL");
  app.add_option("--token-file", options.token_file, "File with the hub's access token")->type_name("F");
  app.add_option("--proxy", options.proxy, "Proxy to fetch experts through (default: as the environment says)")
      ->type_name("URL");
}

Result<StreamOptions> ToStreamOptions(const CommonOptions& options) {
  StreamOptions out;
  out.offline = options.offline;
  if (options.connections) out.connections = *options.connections;
  if (!options.keep_experts.empty()) {
    Result<uint64_t> size = ParseSize(options.keep_experts);
    if (!size) return FailWith(std::move(size), "--keep-experts");
    out.keep_experts = *size;
  }
  if (options.check_twice) DFIN_TRY_VOID(ParseCheckTwice(*options.check_twice));
  if (options.offline && out.keep_experts)
    return Fail(ErrorCode::kInvalidArgument, "--keep-experts",
                ": is about experts that are fetched, which --offline forbids: give one of them");
  const std::string network = NetworkOption(options);
  if (!network.empty() && (options.offline || !IsStreamedFolder(options.model)))
    return Fail(ErrorCode::kInvalidArgument, network,
                ": expected a model whose experts are fetched over the network, got ",
                options.offline ? "--offline" : "one that has them all", ": leave it out");
  return out;
}

Result<std::string> ReadToken(const std::string& path) {
  if (path.empty()) return std::string();
  Result<std::string> text = ReadWholeFile(path, kMaxTokenBytes);
  if (!text) return Fail(ErrorCode::kInvalidArgument, "--token-file ", text.error().message());
  while (!text->empty() && (text->back() == '\n' || text->back() == '\r' || text->back() == ' ')) text->pop_back();
  if (text->empty()) return Fail(ErrorCode::kInvalidArgument, "--token-file ", path, ": expected a token, got nothing");
  return text;
}

RemoteFilesFactory HubOf(const CommonOptions& options, Logger& logger) {
  return [&options, &logger](const StreamManifest& manifest) -> Result<std::unique_ptr<RemoteFiles>> {
    HubAccess access;
    HubOptions& hub = access.hub;
    DFIN_TRY(hub.token, ReadToken(options.token_file));
    access.endpoint_given = !options.endpoint.empty();
    if (access.endpoint_given) hub.endpoint = options.endpoint;
    DFIN_TRY(access.check_twice, ParseCheckTwice(options.check_twice.value_or("auto")));
    hub.retry.attempts = options.fetch_attempts.value_or(kAttempts);
    hub.retry.first_seconds = kFirstSeconds;
    hub.on_retry = [&logger](const std::string& what) { logger.WarnOnce(Cat("fetching experts: ", what)); };
    access.http.proxy = options.proxy;
    return HubFiles::Open(manifest, std::move(access));
  };
}

}  // namespace deltafin
