#include "app/setup_stream.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/exit_code.h"
#include "app/interrupt.h"
#include "app/terminal.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/units.h"
#include "pack/disk.h"
#include "setup/hub_files.h"
#include "setup/stream_fill.h"
#include "setup/stream_start.h"

namespace deltafin {
namespace {

// Left free, for the presence map and whatever else the drive is for.
constexpr uint64_t kSpareBytes = uint64_t{64} << 20;
constexpr int64_t kTerminalPeriodNs = 500'000'000;
constexpr int64_t kLinePeriodNs = 10'000'000'000;

Status CheckRoom(const std::string& folder, uint64_t bytes) {
  DFIN_TRY(const DeviceSpace space, SpaceOf(folder));
  if (bytes == 0 || bytes + kSpareBytes <= space.free_bytes) return {};
  return Fail(ErrorCode::kUnavailable, folder, ": expected ", FormatBytes(bytes + kSpareBytes),
              " of free space for what is to be fetched, got ", FormatBytes(space.free_bytes),
              ": free some, or use a folder on another drive; nothing was begun that cannot go on later");
}

class View {
 public:
  View(const StreamSetupOptions& options, Terminal& terminal) : options_(options), terminal_(terminal) {}

  void Show(const StreamFillProgress& p) {
    const int64_t now = clock_.NowNs();
    const bool often = !options_.json && terminal_.stderr_is_terminal();
    if (now - last_ns_ < (often ? kTerminalPeriodNs : kLinePeriodNs)) return;
    const double seconds = SecondsBetween(start_ns_, now);
    const double rate = static_cast<double>(p.bytes_done) / std::max(seconds, 1e-9);
    const double left = rate > 0 ? static_cast<double>(p.bytes_total - p.bytes_done) / rate : 0;
    last_ns_ = now;
    if (options_.json) {
      Json event = {{"event", "progress"},        {"phase", p.checking ? "checking" : "fetching"},
                    {"done", p.bytes_done},       {"total", p.bytes_total},
                    {"files_done", p.files_done}, {"files", p.files_total},
                    {"bytes_per_second", rate},   {"seconds_left", left}};
      terminal_.Write(DumpJson(event) + "\n");
    } else if (!options_.quiet) {
      terminal_.ShowStatus(Cat(p.checking ? "checking  " : "fetching  ", FormatBytes(p.bytes_done), "/",
                               FormatBytes(p.bytes_total), "  ", FormatRate(rate), "  ",
                               options_.dense_only ? "" : Cat(p.files_done, "/", p.files_total, " shards  "),
                               FormatSeconds(left), " left"));
    }
  }

 private:
  const StreamSetupOptions& options_;
  Terminal& terminal_;
  const SteadyClock clock_;
  const int64_t start_ns_ = clock_.NowNs();
  int64_t last_ns_ = start_ns_;
};

void Conclude(const StreamSetupOptions& o, const StreamManifest& manifest, uint64_t fetched, Terminal& terminal) {
  if (o.json) {
    Json event = {{"event", "done"},           {"folder", o.to},           {"repository", manifest.repository},
                  {"commit", manifest.commit}, {"fetched_bytes", fetched}, {"complete", !o.dense_only}};
    terminal.Write(DumpJson(event) + "\n");
  } else if (!o.quiet) {
    terminal.WriteNote(o.dense_only
                           ? Cat(o.to, ": the dense part is there (", FormatBytes(fetched),
                                 " fetched now). Experts are fetched as they are used:\n  deltafin run --model ", o.to,
                                 " --chat --prompt \"Hello\"\nThe rest, whenever you like:\n  deltafin setup --repo ",
                                 manifest.repository, " --to ", o.to, "\n")
                           : Cat(o.to, ": complete, every shard has the checksum that the hub lists (",
                                 FormatBytes(fetched), " fetched now)\n"));
  }
}

}  // namespace

Result<int> RunStreamSetup(const StreamSetupOptions& options) {
  Terminal terminal;
  const Interrupt interrupt;
  SleepingWaiter waiter;
  DFIN_TRY(const std::unique_ptr<HttpClient> http, HttpClient::Create(options.http));
  HubOptions hub_options = options.hub;
  hub_options.on_retry = [&](const std::string& what) {
    if (!options.quiet) terminal.WriteNote("deltafin: note: " + Printable(what) + ": trying again\n");
  };
  DFIN_TRY(const std::unique_ptr<HubClient> hub, HubClient::Create(*http, waiter, hub_options));
  DFIN_TRY(const std::unique_ptr<StreamFolder> folder,
           StartStream(*hub, options.to, options.revision_given, interrupt.token()));
  const StreamManifest manifest = folder->manifest();
  DFIN_TRY(const std::unique_ptr<RemoteFiles> files, HubFiles::Open(manifest, options.http, hub_options));
  View view(options, terminal);
  uint64_t fetched = 0;
  StreamFillOptions fill;
  fill.connections = options.connections;
  fill.cancel = interrupt.token();
  fill.on_size = [&](uint64_t bytes) { return CheckRoom(options.to, bytes); };
  fill.progress = [&](const StreamFillProgress& p) {
    fetched = p.bytes_done;
    view.Show(p);
  };
  Status filled = options.dense_only ? FillDense(*folder, *files, fill) : FillAll(*folder, *files, fill);
  terminal.EndLine();
  if (!filled) return Failure(std::move(filled.error()));
  Conclude(options, manifest, fetched, terminal);
  DFIN_TRY_VOID(terminal.StdoutStatus());
  return kExitDone;
}

}  // namespace deltafin
