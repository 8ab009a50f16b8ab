// `deltafin setup`: brings a model here: from a hub, from a folder, or finds it in the hub's own cache.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/commands.h"
#include "app/common_options.h"
#include "app/exit_code.h"
#include "app/interrupt.h"
#include "app/setup_stream.h"
#include "app/setup_view.h"
#include "app/stream_options.h"
#include "app/terminal.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/stream_manifest.h"
#include "io/drive_profile.h"
#include "setup/hub_cache.h"
#include "setup/setup.h"

namespace deltafin {
namespace {

struct SetupCommandOptions {
  std::string repo, from_folder, from_cache, to, revision = "main", endpoint = "https://huggingface.co", mirror,
                                                 token_file, proxy, rate, range = "32MiB", replicas, io = "auto",
                                                 state_dir;
  std::vector<std::string> pack_to;
  int connections = 8;
  std::optional<int> fetch_attempts;
  double stall_seconds = 30;
  bool dense_only = false, revision_given = false, endpoint_given = false;
  std::optional<std::string> check_twice;
  bool cache = false, compact = false, keep_shards = false, any_model = false, dry_run = false, json = false,
       verify_again = false, quiet = false, no_state = false;
};

// Tries that bring nothing until a fetch has failed, before the hub answered once and after: an overnight download
// outlives a router that is started again.
constexpr int kFirstAttempts = 8, kAttempts = 45;

Failure Refuse(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }

Status CheckSetupOptions(const SetupCommandOptions& o, const CLI::App& app) {
  if (o.cache && (o.repo.empty() || !o.to.empty() || !o.pack_to.empty() || !o.from_folder.empty()))
    return Refuse("--from-cache: goes with --repo, and copies nothing: no --to, --pack-to or --from-folder");
  if (!o.cache && o.repo.empty() == o.from_folder.empty())
    return Refuse(
        "expected one of --repo OWNER/NAME, --from-folder DIR, and, for what the hub's own tools fetched, --from-cache "
        "with --repo");
  if (!o.cache && o.to.empty()) return Refuse("--to: expected the folder that the model goes to, got none");
  for (const char* name :
       {"--revision", "--endpoint", "--mirror", "--token-file", "--proxy", "--rate", "--stall", "--fetch-attempts"}) {
    const bool of_cache = std::string(name) == "--revision" && o.cache;
    if (app.count(name) > 0 && !of_cache && (o.cache || !o.from_folder.empty()))
      return Refuse(std::string(name) + ": only where a hub is asked, with --repo");
  }
  if (o.cache && (app.count("--connections") > 0 || app.count("--range") > 0 || o.dry_run))
    return Refuse("--from-cache: nothing is fetched: leave --connections, --range and --dry-run out");
  if (o.pack_to.empty() && (o.compact || o.keep_shards || !o.replicas.empty() || app.count("--io") > 0))
    return Refuse("--keep-shards, --compact-scales, --replicas and --io: only with --pack-to");
  if (o.io != "auto" && o.io != "uring" && o.io != "pread")
    return Refuse("--io " + o.io + ": expected auto, uring or pread");
  if (o.no_state && !o.state_dir.empty()) return Refuse("--no-state and --state-dir: give one of them");
  const bool streamed = o.dense_only || (!o.to.empty() && IsStreamedFolder(o.to));
  if (streamed && (o.repo.empty() || o.cache || !o.pack_to.empty() || o.any_model))
    return Refuse(Cat(o.dense_only ? "--dense-only" : o.to + ": its experts are fetched as they are used, so this",
                      ": goes with --repo and --to, and without --pack-to, --from-cache and --any-model"));
  if (!streamed && o.check_twice)
    return Refuse("--check-twice: whole files have checksums to compare with: only with --dense-only, and to complete "
                  "what that began");
  if (streamed && app.count("--range") > 0)
    return Refuse("--range: not where experts are fetched one by one (--dense-only): leave it out");
  if (!o.state_dir.empty() && (streamed || o.any_model || (o.dry_run && o.pack_to.empty())))
    return Refuse("--state-dir: nothing is kept there with --dense-only, --any-model or --dry-run: leave it out");
  if (o.verify_again && (streamed || o.cache))
    return Refuse("--verify-again: only where whole files are fetched: leave it out");
  if (!(o.stall_seconds > 0)) return Refuse("--stall: expected more than 0 seconds");
  return {};
}

Result<uint64_t> SizeOption(std::string text, const char* name) {
  if (text.ends_with("/s")) text.resize(text.size() - 2);
  Result<uint64_t> size = ParseSize(text);
  if (!size) return FailWith(std::move(size), name);
  if (*size == 0) return Refuse(Cat(name, ": expected more than 0 bytes, got 0"));
  return size;
}

Result<SetupOptions> ToSetupOptions(const SetupCommandOptions& o) {
  SetupOptions options;
  options.to = o.to;
  options.any_model = o.any_model;
  options.dry_run = o.dry_run;
  options.verify_again = o.verify_again;
  options.connections = o.connections;
  options.keep_shards = o.keep_shards;
  DFIN_TRY(options.range_bytes, SizeOption(o.range, "--range"));
  PackOptions& pack = options.pack;
  if (!o.no_state) pack.state_folder = o.state_dir.empty() ? DefaultStateFolder() : o.state_dir;
  if (!o.replicas.empty()) {
    DFIN_TRY(pack.replica_bytes, SizeOption(o.replicas, "--replicas"));
  }
  const std::vector<double> rates = ProfiledRates(pack.state_folder, o.pack_to);
  for (size_t i = 0; i < o.pack_to.size(); ++i) pack.targets.push_back({o.pack_to[i], i < rates.size() ? rates[i] : 0});
  pack.compact = o.compact;
  pack.io = o.io;
  return options;
}

Result<int> Finish(Result<SetupReport> report, SetupView& view, Terminal& terminal, const SetupOptions& options,
                   bool quiet) {
  terminal.EndLine();
  if (!report) {
    if (report.error().code() == ErrorCode::kCancelled && !quiet)
      terminal.WriteNote("stopped; give the same command again to go on where it stopped\n");
    return Failure(std::move(report.error()));
  }
  if (options.dry_run)
    view.Plan(*report);
  else
    view.Done(*report, options);
  DFIN_TRY_VOID(terminal.StdoutStatus());
  return kExitDone;
}

Result<int> RunSetup(const SetupCommandOptions& o) {
  DFIN_TRY(SetupOptions options, ToSetupOptions(o));
  Terminal terminal;
  const Interrupt interrupt;
  SetupView view(terminal, o.json, o.quiet);
  options.on_note = [&](const std::string& note) { view.Note(note); };
  const auto progress = [&](const SetupProgress& p) { view.Show(p); };
  if (!o.from_folder.empty()) {
    DFIN_TRY(const auto source, MakeFolderSource(o.from_folder));
    return Finish(FetchModel(*source, options, progress, interrupt.token()), view, terminal, options, o.quiet);
  }
  HttpClientOptions http_options;
  http_options.proxy = o.proxy;
  http_options.stall_seconds = o.stall_seconds;
  if (!o.rate.empty()) {
    DFIN_TRY(http_options.bytes_per_second, SizeOption(o.rate, "--rate"));
  }
  HubOptions hub_options;
  hub_options.repo = o.repo;
  hub_options.revision = o.revision;
  hub_options.endpoint = o.endpoint;
  hub_options.mirror = o.mirror;
  hub_options.on_retry = [&](const std::string& reason) { view.Retry(reason); };
  hub_options.on_wait = [&](int attempts, int most, double) { view.Waiting(attempts, most); };
  hub_options.retry.attempts = o.fetch_attempts.value_or(kAttempts);
  hub_options.first_attempts = o.fetch_attempts ? 0 : kFirstAttempts;
  if (!o.token_file.empty()) {
    DFIN_TRY(hub_options.token, ReadToken(o.token_file));
  }
  DFIN_TRY(const CheckTwice check_twice, ParseCheckTwice(o.check_twice.value_or("auto")));
  if (o.dense_only || IsStreamedFolder(o.to))
    return RunStreamSetup({.access = {.http = http_options,
                                      .hub = hub_options,
                                      .endpoint_given = o.endpoint_given,
                                      .check_twice = check_twice},
                           .revision_given = o.revision_given,
                           .to = o.to,
                           .dense_only = o.dense_only,
                           .dry_run = o.dry_run,
                           .connections = o.connections,
                           .json = o.json,
                           .quiet = o.quiet});
  DFIN_TRY(const auto http, HttpClient::Create(http_options));
  SleepingWaiter waiter;
  DFIN_TRY(const auto hub, HubClient::Create(*http, waiter, hub_options));
  const auto source = MakeHubSource(*hub);
  return Finish(FetchModel(*source, options, progress, interrupt.token()), view, terminal, options, o.quiet);
}

// Where the hub's own tools keep what they fetched.
std::string DefaultHubCache() {
  const auto from = [](const char* name, const char* below) {
    const char* const value = std::getenv(name);
    return value != nullptr && value[0] == '/' ? value + std::string(below) : std::string();
  };
  for (const auto& [name, below] :
       {std::pair("HF_HUB_CACHE", ""), std::pair("HF_HOME", "/hub"), std::pair("XDG_CACHE_HOME", "/huggingface/hub"),
        std::pair("HOME", "/.cache/huggingface/hub")})
    if (std::string folder = from(name, below); !folder.empty()) return folder;
  return ".";
}

void PrintSnapshot(Terminal& terminal, const HubSnapshot& snapshot, const SnapshotCheck& check,
                   const SetupCommandOptions& o) {
  if (o.json) {
    terminal.Write(DumpJson(Json{{"event", "done"},
                                 {"source", "cache"},
                                 {"commit", snapshot.commit},
                                 {"folder", snapshot.folder},
                                 {"files", check.files},
                                 {"bytes_total", check.bytes},
                                 {"faults", check.faults},
                                 {"unchecked", check.unchecked}}) +
                   "\n");
    return;
  }
  std::string text;
  for (const std::string& fault : check.faults) text += fault + "\n";
  terminal.Write(Printable(text));
  if (o.quiet) return;
  for (const std::string& file : check.unchecked)
    terminal.WriteNote("deltafin: note: " + Printable(file) + ": no link to a blob, so not compared with anything\n");
  text = Cat(o.repo, ", commit ", snapshot.commit, ": ", check.files, " files, ", FormatBytes(check.bytes), ", ",
             check.faults.empty() ? std::string("all right") : Cat(check.faults.size(), " damaged or missing"), "\n");
  if (check.faults.empty()) text += Cat("run it: deltafin chat --model ", snapshot.folder, "\n");
  terminal.WriteNote(Printable(text));
}

Result<int> RunFromCache(const SetupCommandOptions& o) {
  Terminal terminal;
  const Interrupt interrupt;
  DFIN_TRY(const HubSnapshot snapshot,
           FindHubSnapshot(o.from_cache.empty() ? DefaultHubCache() : o.from_cache, o.repo, o.revision));
  const bool show = !o.quiet && !o.json && terminal.stderr_is_terminal();
  const auto progress = [&](const std::string& file, uint64_t done, uint64_t total) {
    if (show) terminal.ShowStatus(Printable(Cat("checking ", file, "  ", FormatBytes(done), "/", FormatBytes(total))));
  };
  DFIN_TRY(SnapshotCheck check, CheckHubSnapshot(snapshot, progress, interrupt.token()));
  terminal.ClearStatus();
  if (check.faults.empty() && !o.any_model) {
    CheckpointOptions options;
    options.folder = snapshot.folder;
    if (!o.no_state) options.index_cache_folder = o.state_dir.empty() ? DefaultStateFolder() : o.state_dir;
    options.cancel = interrupt.token();
    if (const Result<Checkpoint> opened = Checkpoint::Open(options); !opened)
      check.faults.push_back(opened.error().message());
  }
  PrintSnapshot(terminal, snapshot, check, o);
  DFIN_TRY_VOID(terminal.StdoutStatus());
  return check.faults.empty() ? kExitDone : kExitFaultsFound;
}

void AddHubOptions(CLI::App* app, SetupCommandOptions& o) {
  app->add_option("--repo", o.repo, "Repository on the hub")->type_name("OWNER/NAME");
  app->add_option("--revision", o.revision, "Branch, tag or commit (main)");
  app->add_option("--endpoint", o.endpoint, "The hub, with the HTTP API of Hugging Face")->type_name("URL");
  app->add_option("--mirror", o.mirror, "Another server for the contents of files; the hub's checksums decide")
      ->type_name("URL");
  app->add_option("--token-file", o.token_file, "File with an access token; it goes to the endpoint only")
      ->type_name("FILE");
  app->add_option("--proxy", o.proxy, "Proxy, or none (default: https_proxy, http_proxy and no_proxy)")
      ->type_name("URL");
  app->add_option("--connections", o.connections, "Ranges fetched at a time, 1 to 64 (8)")->check(CLI::Range(1, 64));
  app->add_option("--rate", o.rate, "Most bytes a second, of all connections together, e.g. 50MB/s")->type_name("SIZE");
  app->add_option("--range", o.range, "Bytes asked for in one request (32MiB)")->type_name("SIZE");
  app->add_option("--fetch-attempts", o.fetch_attempts,
                  "Tries in a row that bring nothing until a fetch has failed (45: about half an hour; 8 for the first "
                  "answer)")
      ->check(CLI::Range(1, 1000));
  app->add_option("--stall", o.stall_seconds, "Seconds without data until a connection is given up (30)")
      ->type_name("SECONDS");
}

}  // namespace

Command AddSetup(CLI::App& root) {
  auto o = std::make_shared<SetupCommandOptions>();
  CLI::App* app = root.add_subcommand(
      "setup", "Bring a model here from a hub or a folder, verified; the same command goes on after an interruption");
  AddHubOptions(app, *o);
  app->add_option("--from-folder", o->from_folder, "A download that exists, copied and compared")->type_name("DIR");
  app->add_option("--from-cache", o->from_cache,
                  "The hub's own cache (default: where its tools keep it): find the model of --repo, verify it, copy "
                  "nothing")
      ->type_name("DIR")
      ->expected(0, 1);
  app->add_option("--to", o->to, "Folder for the model")->type_name("DIR");
  app->add_option("--pack-to", o->pack_to,
                  "Folder on a drive, once for each: pack the experts there, shard by shard, and take them out of the "
                  "shards")
      ->type_name("DIR");
  app->add_flag("--dense-only", o->dense_only,
                "Fetch all but the experts: runs fetch those as they are used, and setup without this the rest");
  AddCheckTwice(*app, o->check_twice);
  app->add_flag("--keep-shards", o->keep_shards, "With --pack-to: leave the shards whole");
  app->add_option("--replicas", o->replicas, "With --pack-to: room for second copies of experts")->type_name("SIZE");
  app->add_flag("--compact-scales", o->compact, "With --pack-to: as pack does");
  app->add_option("--io", o->io, "With --pack-to: reading engine, auto, uring or pread");
  app->add_flag("--any-model", o->any_model, "Take a repository that is not a Kimi K3 model: a drafting model");
  app->add_flag("--verify-again", o->verify_again,
                "Read files too that were verified before and have the same size and time since");
  app->add_flag("--dry-run", o->dry_run, "List the files and the room they need, write nothing");
  app->add_flag("--json", o->json, "Events as JSON lines on stdout");
  app->add_option("--state-dir", o->state_dir, "Folder for what is kept between runs")->type_name("DIR");
  app->add_flag("--no-state", o->no_state, "Keep nothing between runs");
  app->add_flag("--quiet", o->quiet, "No progress and no report on stderr");
  return {app, [o, app]() -> Result<int> {
            o->cache = app->count("--from-cache") > 0;
            o->revision_given = app->count("--revision") > 0;
            o->endpoint_given = app->count("--endpoint") > 0;
            DFIN_TRY_VOID(CheckSetupOptions(*o, *app));
            return o->cache ? RunFromCache(*o) : RunSetup(*o);
          }};
}

}  // namespace deltafin
