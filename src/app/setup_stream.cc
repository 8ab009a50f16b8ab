#include "app/setup_stream.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/exit_code.h"
#include "app/interrupt.h"
#include "app/setup_view.h"
#include "app/terminal.h"
#include "base/json.h"
#include "base/units.h"
#include "pack/disk.h"
#include "setup/stream_fill.h"
#include "setup/stream_start.h"

namespace deltafin {
namespace {

// Left free, for the presence map and whatever else the drive is for.
constexpr uint64_t kSpareBytes = uint64_t{64} << 20;

Status CheckRoom(const std::string& folder, uint64_t bytes) {
  DFIN_TRY(const DeviceSpace space, SpaceOf(folder));
  if (bytes == 0 || bytes + kSpareBytes <= space.free_bytes) return {};
  return Fail(ErrorCode::kUnavailable, folder, ": expected ", FormatBytes(bytes + kSpareBytes),
              " of free space for what is to be fetched, got ", FormatBytes(space.free_bytes),
              ": free some, or use a folder on another drive; nothing was begun that cannot go on later");
}

SetupProgress Phase(std::string phase) {
  SetupProgress progress;
  progress.phase = std::move(phase);
  return progress;
}

SetupProgress ToProgress(const StreamFillProgress& p, bool dense_only) {
  SetupProgress progress = Phase(!p.checking.empty()  ? "checking " + p.checking
                                 : p.bytes_total == 0 ? "reading headers"
                                 : dense_only         ? "fetching all but experts"
                                                      : "fetching");
  progress.files_done = p.files_done;
  progress.files_total = p.bytes_total == 0 ? 0 : p.files_total;
  progress.bytes_done = progress.bytes_received = p.bytes_done;
  progress.bytes_total = p.bytes_total;
  return progress;
}

// What speaks for bytes that were fetched as parts of shards.
std::string CheckedBy(const HubAccess& access) {
  if (ReadsTwice(access)) return "fetched twice and compared";
  return access.check_twice == CheckTwice::kOff ? "not compared with anything" : "protected on their way by https";
}

class StreamSetup {
 public:
  explicit StreamSetup(const StreamSetupOptions& options)
      : options_(options), access_(options.access), view_(terminal_, options.json, options.quiet) {
    access_.hub.on_retry = [this](const std::string& reason) { view_.Retry(reason); };
    access_.hub.on_wait = [this](int attempts, int most, double) { view_.Waiting(attempts, most); };
    start_.revision_given = options.revision_given;
    start_.endpoint_given = options.access.endpoint_given;
    start_.on_note = [this](const std::string& text) { view_.Note(text); };
    start_.on_phase = [this](const std::string& phase) { view_.Show(Phase(phase)); };
    start_.cancel = interrupt_.token();
  }

  Result<int> Run() {
    view_.Show(Phase("reading the file list"));
    Status done = options_.dry_run ? Plan() : Fill();
    terminal_.EndLine();
    if (!done && done.error().code() == ErrorCode::kCancelled && !options_.quiet)
      terminal_.WriteNote("stopped; give the same command again to go on where it stopped\n");
    if (!done) return Failure(std::move(done.error()));
    DFIN_TRY_VOID(terminal_.StdoutStatus());
    return kExitDone;
  }

 private:
  Status Plan() {
    DFIN_TRY_VOID(Connect());
    DFIN_TRY(const SetupReport report, PlanStream(*hub_, options_.to, options_.dense_only, start_));
    view_.Plan(report);
    return {};
  }

  Status Fill() {
    DFIN_TRY_VOID(Connect());
    DFIN_TRY(const StartedStream started, StartStream(*hub_, options_.to, start_));
    StreamFolder& folder = *started.folder;
    const StreamManifest manifest = folder.manifest();
    DFIN_TRY(const std::unique_ptr<RemoteFiles> files, HubFiles::Open(manifest, access_));
    access_.hub.endpoint = manifest.endpoint;
    const uint64_t whole_before = folder.totals().published;
    uint64_t fetched = 0;
    StreamFillOptions fill;
    fill.connections = options_.connections;
    fill.cancel = interrupt_.token();
    fill.on_size = [&](uint64_t bytes) { return CheckRoom(options_.to, bytes); };
    fill.progress = [&](const StreamFillProgress& p) {
      fetched = p.bytes_done;
      view_.Show(ToProgress(p, options_.dense_only));
    };
    DFIN_TRY_VOID(options_.dense_only ? FillDense(folder, *files, fill) : FillAll(folder, *files, fill));
    Conclude(manifest, fetched, whole_before);
    return {};
  }

  // A folder that is one already says where its files come from.
  Status Connect() {
    if (IsStreamedFolder(options_.to)) {
      DFIN_TRY(const StreamManifest manifest, ReadStreamManifest(options_.to));
      DFIN_TRY(access_.hub.endpoint, EndpointFor(manifest, access_.hub, access_.endpoint_given));
    }
    DFIN_TRY(http_, HttpClient::Create(access_.http));
    DFIN_TRY(hub_, HubClient::Create(*http_, waiter_, access_.hub));
    return {};
  }

  void Conclude(const StreamManifest& manifest, uint64_t fetched, uint64_t whole_before) {
    const bool complete = !options_.dense_only;
    uint64_t bytes = 0;
    for (const StreamFile& file : manifest.files) bytes += file.bytes;
    Json event = {{"source", Cat(manifest.repository, " on ", manifest.endpoint)},
                  {"commit", manifest.commit},
                  {"folder", options_.to},
                  {"files", manifest.files.size()},
                  {"files_fetched", complete ? manifest.files.size() - whole_before : 0},
                  {"files_there", whole_before},
                  {"bytes_total", bytes},
                  {"bytes_received", fetched},
                  {"complete", complete},
                  {"parts_checked", CheckedBy(access_)}};
    view_.Done(std::move(event), complete ? CompleteText(fetched) : DenseText(manifest, fetched));
  }

  std::string CompleteText(uint64_t fetched) const {
    return Cat(options_.to, ": complete, every shard has the checksum that the hub lists (", FormatBytes(fetched),
               " fetched now)\n");
  }

  std::string DenseText(const StreamManifest& manifest, uint64_t fetched) const {
    return Cat(options_.to, ": the dense part is there (", FormatBytes(fetched), " now, ", CheckedBy(access_),
               ").\nThe hub lists checksums of whole shards only: parts are held against one when the shard is "
               "complete.\nExperts are fetched as they are used:\n  deltafin run --model ",
               options_.to, " --chat --prompt \"Hello\"\nThe rest, whenever you like:\n  deltafin setup --repo ",
               manifest.repository, " --to ", options_.to, "\n");
  }

  const StreamSetupOptions& options_;
  HubAccess access_;
  Terminal terminal_;
  const Interrupt interrupt_;
  SetupView view_;
  StreamStartOptions start_;
  SleepingWaiter waiter_;
  std::unique_ptr<HttpClient> http_;
  std::unique_ptr<HubClient> hub_;
};

}  // namespace

Result<int> RunStreamSetup(const StreamSetupOptions& options) { return StreamSetup(options).Run(); }

}  // namespace deltafin
