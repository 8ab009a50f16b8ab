// `deltafin pack`: routed experts from the shards to a set spread over several drives, or such a set over other drives;
// with --dense the dense weights, in 12 bits.
#include <CLI/CLI.hpp>
#include <memory>

#include "app/choices.h"
#include "app/commands.h"
#include "app/common_options.h"
#include "app/exit_code.h"
#include "app/interrupt.h"
#include "app/pack_dense_run.h"
#include "app/terminal.h"
#include "base/clock.h"
#include "base/units.h"
#include "cache/expert_usage.h"
#include "checkpoint/expert_set.h"
#include "io/drive_profile.h"
#include "pack/pack.h"

namespace deltafin {
namespace {

struct PackCommandOptions {
  std::string model, replicas, io = "auto", state_dir;
  std::vector<std::string> to, experts;
  bool compact = false, move = false, rebalance = false, dense = false, no_state = false, quiet = false;
};

Status CheckPackOptions(const PackCommandOptions& o) {
  const auto refuse = [](const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); };
  if (o.dense && (o.compact || o.move || o.rebalance || !o.replicas.empty() || !o.experts.empty()))
    return refuse("--dense: packs dense weights and nothing else: give the options for experts to a pack of their own");
  if (o.dense && o.to.size() != 1)
    return refuse(
        Cat("--dense: expected --to with one folder, got ", o.to.size(), ": they are not spread over drives"));
  DFIN_TRY_VOID(CheckChoice("--io", o.io));
  if (o.no_state && !o.state_dir.empty()) return refuse("--no-state and --state-dir: give one of them");
  if (!o.rebalance && !o.experts.empty())
    return refuse("--experts: only with --rebalance, where it says where the set is now; --to names where to write");
  if (o.rebalance && (o.compact || o.move || !o.replicas.empty()))
    return refuse(
        "--rebalance: keeps records and second copies as they are: give --compact-scales, --move or "
        "--replicas to a pack of their own");
  return {};
}

// How often each expert was used in runs of this checkpoint; nothing where that is not known.
std::vector<uint64_t> UsageOf(const std::string& state_folder, const ModelSpec& spec, uint64_t fingerprint) {
  ExpertUsage usage(static_cast<int64_t>(spec.layers.size()), spec.num_experts, fingerprint);
  std::vector<uint64_t> counts;
  if (state_folder.empty() || !usage.Load(state_folder)) return counts;
  const auto layers = static_cast<int32_t>(spec.layers.size());
  for (int32_t l = layers - static_cast<int32_t>(spec.num_moe_layers); l < layers; ++l)
    for (int32_t e = 0; e < spec.num_experts; ++e) counts.push_back(usage.Count({l, e}));
  return counts;
}

Result<PackOptions> ToPackOptions(const PackCommandOptions& o) {
  DFIN_TRY_VOID(CheckPackOptions(o));
  PackOptions options;
  options.model = o.model;
  if (!o.no_state) options.state_folder = o.state_dir.empty() ? DefaultStateFolder() : o.state_dir;
  if (!o.replicas.empty()) {
    Result<uint64_t> size = ParseSize(o.replicas);
    if (!size) return FailWith(std::move(size), "--replicas");
    if (*size == 0)
      return Fail(ErrorCode::kInvalidArgument,
                  "--replicas: expected more than 0 bytes, got 0: leave the option out "
                  "for no more second copies; pack takes none away");
    options.replica_bytes = *size;
  }
  const std::vector<double> rates = ProfiledRates(options.state_folder, o.to);
  for (size_t i = 0; i < o.to.size(); ++i) options.targets.push_back({o.to[i], i < rates.size() ? rates[i] : 0});
  options.usage_of = [folder = options.state_folder](const ModelSpec& spec, uint64_t fingerprint) {
    return UsageOf(folder, spec, fingerprint);
  };
  options.compact = o.compact;
  options.move = o.move;
  options.io = o.io;
  return options;
}

// Shows how far the work is; on a terminal in one line, else a line every ten seconds and at every new phase.
class PackView {
 public:
  PackView(Terminal& terminal, bool quiet) : terminal_(terminal), quiet_(quiet) {}

  void Show(const PackProgress& p) {
    const int64_t now = clock_.NowNs();
    const int64_t period_ns = terminal_.stderr_is_terminal() ? 500'000'000 : 10'000'000'000;
    if (quiet_ || (now - last_ < period_ns && last_ != 0)) return;
    if (last_ == 0) start_ = now;
    last_ = now;
    const double seconds = SecondsBetween(start_, now);
    const uint64_t written = p.bytes_done - p.bytes_resumed;
    std::string text = Cat(p.phase, "  ", p.records_done, "/", p.records_total, " experts  ", FormatBytes(p.bytes_done),
                           "/", FormatBytes(p.bytes_total));
    if (seconds > 0 && written > 0) {
      const double rate = static_cast<double>(written) / seconds;
      const uint64_t left = p.bytes_total - std::min(p.bytes_total, p.bytes_done);
      text += Cat("  ", FormatRate(rate), "  ", FormatSeconds(static_cast<double>(left) / rate), " left");
    }
    terminal_.ShowStatus(text);
  }
  double seconds() const { return SecondsBetween(begin_, clock_.NowNs()); }

 private:
  Terminal& terminal_;
  const bool quiet_;
  const SteadyClock clock_;
  const int64_t begin_ = clock_.NowNs();
  int64_t start_ = 0, last_ = 0;
};

void PrintReport(Terminal& terminal, const PackReport& r, const PackOptions& options, double seconds) {
  std::string text = Cat(r.records, " experts of at most ", FormatBytes(r.record_bytes), " on ", r.folders.size(),
                         r.folders.size() == 1 ? " drive" : " drives", ", generation ", r.generation, "; ",
                         FormatBytes(r.bytes_written), " written in ", FormatSeconds(seconds));
  if (r.bytes_written > 0 && seconds > 0)
    text += Cat(" (", FormatRate(static_cast<double>(r.bytes_written) / seconds), ")");
  text += "\n";
  if (r.replica_records > 0) text += Cat(r.replica_records, " experts have a second copy\n");
  if (options.compact) text += Cat(r.matrices_whole, " of ", 3 * r.records, " matrices keep their scales whole\n");
  if (options.move) text += Cat(r.shards_emptied, " shards gave up their experts\n");
  if (r.records_missing > 0)
    text += Cat(r.records_missing, " experts are not there yet: pack again when more shards have arrived\n");
  if (!r.pointer_file.empty()) text += Cat("noted in ", r.pointer_file, "\n");
  terminal.WriteNote(text);
}

Result<int> RunPack(const PackCommandOptions& o) {
  if (o.dense) {
    DFIN_TRY_VOID(CheckPackOptions(o));
    PackDenseOptions dense;
    dense.model = o.model;
    dense.to = o.to[0];
    if (!o.no_state) dense.state_folder = o.state_dir.empty() ? DefaultStateFolder() : o.state_dir;
    dense.io = o.io;
    return RunPackDense(std::move(dense), o.quiet);
  }
  DFIN_TRY(PackOptions options, ToPackOptions(o));
  Terminal terminal;
  const Interrupt interrupt;
  PackView view(terminal, o.quiet);
  options.on_note = [&](const std::string& note) {
    terminal.EndLine();
    terminal.WriteNote("deltafin: note: " + Printable(note) + "\n");
  };
  const auto progress = [&](const PackProgress& p) { view.Show(p); };
  Result<PackReport> report = Fail(ErrorCode::kInternal, "not run");
  if (o.rebalance) {
    std::vector<std::string> from = o.experts;
    if (from.empty()) {
      DFIN_TRY(from, FindExpertFolders(o.model, options.state_folder));
    }
    report = Rebalance(options, from, progress, interrupt.token());
  } else {
    report = Pack(options, progress, interrupt.token());
  }
  terminal.EndLine();
  if (!report) {
    if (report.error().code() == ErrorCode::kCancelled && !o.quiet)
      terminal.WriteNote("stopped; give the same command again to go on where it stopped\n");
    return Failure(std::move(report.error()));
  }
  if (!o.quiet) PrintReport(terminal, *report, options, view.seconds());
  return kExitDone;
}

}  // namespace

Command AddPack(CLI::App& root) {
  auto o = std::make_shared<PackCommandOptions>();
  CLI::App* app =
      root.add_subcommand("pack", "Spread the routed experts over several drives, or pack the dense weights");
  app->add_option("--model", o->model, "Folder of the checkpoint; may be a partial download")
      ->required()
      ->type_name("DIR");
  app->add_option("--to", o->to, "Folder on a drive; once for each drive")->required()->type_name("DIR");
  app->add_option("--replicas", o->replicas, "Room for second copies of the most used experts, in all")
      ->type_name("SIZE");
  app->add_flag("--compact-scales", o->compact, "Store scales in half the bytes where that loses nothing");
  app->add_flag("--move", o->move, "Take experts out of each shard once the drives have given them back unchanged");
  app->add_flag("--rebalance", o->rebalance, "Spread a set that is already packed over these folders");
  app->add_option("--experts", o->experts, "With --rebalance: where the set is now (default: as pack noted it)")
      ->type_name("DIR");
  app->add_flag("--dense", o->dense, "Pack the dense weights instead, in 12 bits without loss, for --dense of run");
  app->add_option("--io", o->io, "Reading engine: auto, uring or pread");
  app->add_option("--state-dir", o->state_dir, "Folder for what is kept between runs")->type_name("DIR");
  app->add_flag("--no-state", o->no_state, "Keep nothing between runs");
  app->add_flag("--quiet", o->quiet, "No progress and no report on stderr");
  return {app, [o] { return RunPack(*o); }};
}

}  // namespace deltafin
