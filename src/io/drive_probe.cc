#include "io/drive_probe.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/aligned_buffer.h"
#include "base/units.h"
#include "io/drive_read_run.h"

namespace deltafin {
namespace {

// How a drive's time and bytes are shared out. At most 26 cells are measured.
constexpr double kCellTime = 1.0 / 40, kCompareTime = 1.0 / 20, kPairTime = 1.0 / 15, kTogetherTime = 1.0 / 6;
constexpr double kCellBytes = 1.0 / 70, kCompareBytes = 1.0 / 4, kPairBytes = 1.0 / 6, kTogetherBytes = 1.0 / 6;
// Direct and buffered reads take turns, since a shared drive changes from one second to the next.
constexpr int kTurns = 3;
constexpr double kMuchCached = 0.1;
// As large as what a layer's experts are read into, far beyond any processor's cache.
constexpr uint64_t kProbeMemory = 256 * kMiB;
constexpr uint64_t kNoByteLimit = ~uint64_t{0};

struct Subject {
  ProbedDrive report;
  DriveTestFiles files;
  UnreadSpans spans{{}};
};

class Probe {
 public:
  Probe(const ProbeOptions& options, const ProbeProgressFn& progress, CancelToken cancel)
      : options_(options),
        progress_(progress),
        cancel_(cancel),
        clock_(options.clock != nullptr ? *options.clock : steady_clock_) {}

  Result<ProbeReport> Measure(const std::vector<ProbeTarget>& targets) {
    for (const ProbeTarget& target : targets) {
      const Status status = MeasureAlone(target);
      if (status) continue;
      if (status.error().code() == ErrorCode::kCancelled || status.error().code() == ErrorCode::kOutOfMemory)
        return Failure(status.error());
      report_.skipped.push_back({target.folder, target.drive.device, status.error().message(), status.error().code()});
    }
    DFIN_TRY_VOID(MeasurePairs());
    DFIN_TRY_VOID(MeasureTogether());
    for (Subject& subject : subjects_) {
      subject.report.bytes_read = subject.spans.total_bytes() - subject.spans.bytes_left();
      report_.drives.push_back(std::move(subject.report));
    }
    return std::move(report_);
  }

 private:
  Status MeasureAlone(const ProbeTarget& target) {
    Subject subject;
    subject.report.folder = target.folder;
    subject.report.drive = target.drive;
    DFIN_TRY_VOID(OpenFiles(target, &subject));
    DFIN_TRY_VOID(MeasureGrid(&subject));
    DFIN_TRY_VOID(CompareWithBuffered(&subject));
    subjects_.push_back(std::move(subject));
    return {};
  }

  Status OpenFiles(const ProbeTarget& target, Subject* subject) {
    if (target.files.empty()) {
      if (target.drive.read_only)
        return Fail(ErrorCode::kInvalidArgument, target.folder,
                    ": mounted read-only and no large file of it was given: nothing to read");
      Tell(target.folder, "writing a test file");
      const OwnFileOptions own{AlignUp(options_.test_file_bytes, UnreadSpans::kRegion), 20};
      DFIN_TRY(subject->files, DriveTestFiles::Own(target.folder, own, clock_, cancel_));
    } else {
      DFIN_TRY(subject->files, DriveTestFiles::Existing(target.files));
    }
    subject->spans = UnreadSpans(subject->files.sizes());
    subject->report.own_file = subject->files.own();
    subject->report.direct_possible = subject->files.can_read_directly();
    if (subject->spans.total_bytes() == 0)
      return Fail(ErrorCode::kInvalidArgument, target.folder, ": no file of at least ",
                  FormatBytes(UnreadSpans::kRegion), " to read");
    return {};
  }

  Status MeasureGrid(Subject* subject) {
    const CellLimits limits{options_.seconds * kCellTime, PartOf(*subject, kCellBytes)};
    std::vector<DriveMeasurement>& grid = subject->report.profile.grid;
    while (const std::optional<DriveSetting> setting = NextSetting(grid, limits)) {
      Tell(subject->report.folder, Cat(FormatBytes(setting->block_bytes), " x ", setting->depth));
      DFIN_TRY(const std::vector<StreamRate> rates, Read({Stream(subject, *setting, true)}, limits));
      if (rates[0].reads == 0) break;
      grid.push_back({setting->block_bytes, setting->depth, true, rates[0].bytes_per_second,
                      rates[0].latency_p50_seconds, rates[0].latency_p99_seconds});
    }
    if (grid.empty())
      return Fail(ErrorCode::kIo, subject->report.folder, ": no read ended in ", FormatSeconds(limits.seconds));
    return {};
  }

  // The rates that count: longer than a cell of the grid, direct and buffered in turn.
  Status CompareWithBuffered(Subject* subject) {
    ProbedDrive& report = subject->report;
    const DriveMeasurement best = BestSetting(report.profile.grid);
    const DriveSetting setting{best.block_bytes, best.depth};
    const CellLimits limits{options_.seconds * kCompareTime,
                            std::max(PartOf(*subject, kCompareBytes / (2 * kTurns)), 4 * setting.in_flight())};
    std::vector<StreamRate> direct, buffered;
    bool buffered_always_wins = true;
    for (int turn = 0; turn < kTurns; ++turn) {
      Tell(report.folder, "direct");
      DFIN_TRY(const std::vector<StreamRate> rates, Read({Stream(subject, setting, true)}, limits));
      Tell(report.folder, "buffered");
      const std::vector<UnreadSpans::Span> ahead = subject->spans.Ahead(limits.bytes);
      subject->files.Forget(ahead);
      report.cached_part = std::max(report.cached_part, subject->files.CachedPart(ahead));
      DFIN_TRY(const std::vector<StreamRate> through, Read({Stream(subject, setting, false)}, limits));
      subject->files.Forget(ahead);
      if (through[0].reads == 0) break;  // a short file is read through now
      direct.push_back(rates[0]);
      buffered.push_back(through[0]);
      buffered_always_wins &= !PrefersDirect(rates[0].bytes_per_second, through[0].bytes_per_second, false);
    }
    // Without any turn the grid's figure is what there is.
    if (direct.empty()) {
      direct.push_back({1, 0, best.bytes_per_second, best.latency_p50_seconds, best.latency_p99_seconds});
      buffered.push_back({});
      buffered_always_wins = false;
    }
    report.direct_bytes_per_second = Median(direct).bytes_per_second;
    report.buffered_bytes_per_second = Median(buffered).bytes_per_second;
    report.buffered_cached = report.cached_part > kMuchCached ||
                             LooksCached(report.direct_bytes_per_second, report.buffered_bytes_per_second);
    const bool use_direct = report.buffered_cached || !buffered_always_wins;
    Choose(setting, use_direct, Median(use_direct ? direct : buffered), &report);
    return {};
  }

  // The turn with the middle rate.
  static StreamRate Median(std::vector<StreamRate> turns) {
    std::sort(turns.begin(), turns.end(),
              [](const StreamRate& a, const StreamRate& b) { return a.bytes_per_second < b.bytes_per_second; });
    return turns[turns.size() / 2];
  }

  static void Choose(const DriveSetting& setting, bool use_direct, const StreamRate& rate, ProbedDrive* report) {
    DriveProfile& profile = report->profile;
    profile.identity = report->drive.identity;
    profile.device = report->drive.device;
    profile.model = report->drive.model;
    profile.measured_unix_seconds = static_cast<int64_t>(std::time(nullptr));
    profile.block_bytes = setting.block_bytes;
    profile.depth = setting.depth;
    profile.direct = use_direct && report->direct_possible;
    profile.bytes_per_second = rate.bytes_per_second;
    report->latency_p50_seconds = rate.latency_p50_seconds;
    report->latency_p99_seconds = rate.latency_p99_seconds;
  }

  Status MeasurePairs() {
    const size_t count = subjects_.size();
    for (size_t a = 0; a < count; ++a) {
      for (size_t b = a + 1; b < count; ++b) {
        Tell(subjects_[a].report.folder, "together with " + subjects_[b].report.folder);
        DFIN_TRY(const std::vector<double> rates,
                 ReadTogether({a, b}, kPairTime, kPairBytes / static_cast<double>(count - 1)));
        if (rates.empty()) continue;
        ProbedPair pair{a, b, rates[0], rates[1], 0, false};
        const double alone =
            subjects_[a].report.profile.bytes_per_second + subjects_[b].report.profile.bytes_per_second;
        pair.part_of_alone = (rates[0] + rates[1]) / alone;
        pair.shares_limit = SharesLimit(rates[0] + rates[1], alone);
        report_.pairs.push_back(pair);
      }
    }
    return {};
  }

  Status MeasureTogether() {
    if (subjects_.size() < 2) return {};
    // Two are a pair, and that was measured.
    if (subjects_.size() == 2) {
      if (!report_.pairs.empty())
        report_.together = {report_.pairs[0].first_bytes_per_second, report_.pairs[0].second_bytes_per_second};
      return {};
    }
    Tell(Cat(subjects_.size(), " drives"), "together");
    std::vector<size_t> all(subjects_.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    DFIN_TRY(report_.together, ReadTogether(all, kTogetherTime, kTogetherBytes));
    return {};
  }

  // Reads `who` at once and notes the rates in their profiles. Empty where too little is left to read.
  Result<std::vector<double>> ReadTogether(const std::vector<size_t>& who, double time_part, double bytes_part) {
    std::vector<ReadStream> streams;
    CellLimits limits{options_.seconds * time_part, kNoByteLimit};
    for (const size_t i : who) {
      Subject& subject = subjects_[i];
      const DriveProfile& profile = subject.report.profile;
      streams.push_back(Stream(&subject, {profile.block_bytes, profile.depth}, profile.direct));
      // All are read for the same time: as long as the one that is through its bytes first.
      const double bytes = static_cast<double>(std::min(PartOf(subject, bytes_part), subject.spans.bytes_left()));
      limits.seconds = std::min(limits.seconds, bytes / profile.bytes_per_second);
    }
    DFIN_TRY(const std::vector<StreamRate> measured, Read(streams, limits));
    std::vector<double> rates;
    for (size_t i = 0; i < who.size(); ++i) {
      // Fewer reads than twice the queue say little about a rate.
      const uint64_t depth = static_cast<uint64_t>(streams[i].setting.depth);
      if (measured[i].reads < 2 * depth + 1) return std::vector<double>();
      rates.push_back(measured[i].bytes_per_second);
    }
    for (size_t i = 0; i < who.size(); ++i) NoteTogether(who, i, rates[i]);
    return rates;
  }

  void NoteTogether(const std::vector<size_t>& who, size_t which, double rate) {
    DriveProfile::Together together;
    for (const size_t other : who)
      if (other != who[which]) together.others.push_back(subjects_[other].report.profile.identity);
    together.bytes_per_second = rate;
    subjects_[who[which]].report.profile.together.push_back(std::move(together));
  }

  Result<std::vector<StreamRate>> Read(const std::vector<ReadStream>& streams, const CellLimits& limits) {
    uint64_t bytes = 0;
    int depth = 0;
    for (const ReadStream& stream : streams) {
      bytes += stream.setting.in_flight();
      depth += stream.setting.depth;
    }
    DFIN_TRY_VOID(ReserveMemory(bytes));
    DFIN_TRY(const std::unique_ptr<IoEngine> engine, MakeEngine(depth));
    report_.engine = engine->name();
    return RunReads(*engine, streams, limits, memory_.span(), clock_, cancel_);
  }

  // Touched here, so that no measurement pays for it.
  Status ReserveMemory(uint64_t bytes) {
    if (memory_.size() >= bytes) return {};
    memory_ = AlignedBuffer();
    DFIN_TRY(memory_, AlignedBuffer::Create(std::max(bytes, kProbeMemory)));
    std::fill_n(memory_.data(), memory_.size(), std::byte{1});
    return {};
  }

  Result<std::unique_ptr<IoEngine>> MakeEngine(int depth) const {
    if (options_.make_engine) return options_.make_engine(depth);
    return CreateIoEngine({.kind = options_.io, .depth = depth});
  }

  static ReadStream Stream(Subject* subject, const DriveSetting& setting, bool direct) {
    return {&subject->files, &subject->spans, setting, direct};
  }
  static uint64_t PartOf(const Subject& subject, double part) {
    return static_cast<uint64_t>(static_cast<double>(subject.spans.total_bytes()) * part);
  }
  void Tell(const std::string& folder, const std::string& what) const {
    if (progress_) progress_(Cat(folder, ": ", what));
  }

  const ProbeOptions& options_;
  const ProbeProgressFn& progress_;
  const CancelToken cancel_;
  const SteadyClock steady_clock_;
  const Clock& clock_;
  AlignedBuffer memory_;
  std::vector<Subject> subjects_;
  ProbeReport report_;
};

}  // namespace

Result<ProbeReport> ProbeDrives(const std::vector<ProbeTarget>& targets, const ProbeOptions& options,
                                const ProbeProgressFn& progress, CancelToken cancel) {
  if (!(options.seconds > 0) || options.test_file_bytes < kLeastOwnBytes)
    return Fail(ErrorCode::kInvalidArgument, "measuring drives: expected seconds above 0 and a test file of at least ",
                FormatBytes(kLeastOwnBytes), ", got ", options.seconds, " s and ",
                FormatBytes(options.test_file_bytes));
  Probe probe(options, progress, cancel);
  return probe.Measure(targets);
}

}  // namespace deltafin
