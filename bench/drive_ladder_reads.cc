// drive_ladder_reads: reads layers of expert records straight through the I/O scheduler and compares with what the
// drives can do. Part of bench/drive_ladder; also useful alone, on any folders with a large file each.
//
// Records are cut over all drives in proportion to their rates (striped, as `pack` does) or read whole from one drive
// each, the one that is expected to finish first (mirrored, the usual way). Prints one JSON object.
// With --plain: one drive, and turns of layer reads and of the probe that `drives` uses, over places not read before.
#include <CLI/CLI.hpp>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "base/aligned_buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/expert_cut.h"
#include "io/drive_read_run.h"
#include "io/io_scheduler.h"

namespace deltafin {
namespace {

constexpr uint64_t kPage = 4096;

struct Options {
  std::vector<std::string> files;
  std::vector<double> rates;      // the drives' limits, bytes a second
  std::vector<double> cut_rates;  // as measured; default: the limits
  std::string placement = "striped", io = "auto", plain;
  uint64_t record = 17'547'264;  // of the released model
  int experts = 16, warm_layers = 2, layers = 10, ahead = 0, rounds = 4;
  double seconds = 2;
  uint64_t seed = 1, chunk = 0, window = 0;
};

// Waits until every read that was begun has ended. Outlives the scheduler, whose thread may still be in End() when
// Wait() has returned.
class Countdown {
 public:
  void Begin() {
    const std::lock_guard lock(mutex_);
    ++open_;
  }
  void End(const Status& status) {
    const std::lock_guard lock(mutex_);
    if (!status && status_) status_ = Failure(status.error());
    if (--open_ == 0) done_.notify_all();
  }
  Status Wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return open_ == 0; });
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  int open_ = 0;
  Status status_;
};

// One layer's reads: for each record the parts, and what each drive has to deliver.
struct Layer {
  std::vector<std::vector<ReadPart>> records;
  std::vector<uint64_t> drive_bytes;
};

class Ladder {
 public:
  Ladder(const Options& options, std::vector<DirectFile> files)
      : options_(options), files_(std::move(files)), random_(options.seed) {}

  Result<Json> Run() {
    const size_t layers_in_memory = options_.ahead != 0 ? 2 : 1;
    const uint64_t slot = AlignUp(options_.record + 2 * kPage * files_.size(), kPage);
    DFIN_TRY(memory_, AlignedBuffer::Create(slot * static_cast<uint64_t>(options_.experts) * layers_in_memory));
    std::fill_n(memory_.data(), memory_.size(), std::byte{1});
    slot_ = slot;
    asked_.assign(files_.size(), 0);
    DFIN_TRY_VOID(StartScheduler());
    return Measure();
  }

 private:
  Status StartScheduler() {
    DFIN_TRY(std::unique_ptr<IoEngine> engine, CreateIoEngine({.kind = options_.io, .depth = 256}));
    IoSchedulerOptions io;
    io.drives.clear();
    for (size_t i = 0; i < files_.size(); ++i) io.drives.push_back({options_.files[i], CutRates()[i]});
    io.chunk_bytes = options_.chunk;
    io.window_bytes = options_.window;
    scheduler_ = std::make_unique<IoScheduler>(std::move(engine), io);
    return {};
  }

  std::span<const double> CutRates() const { return options_.cut_rates.empty() ? options_.rates : options_.cut_rates; }

  Layer PlanLayer(int number) {
    Layer layer;
    layer.drive_bytes.resize(files_.size());
    const size_t half = options_.ahead != 0 ? static_cast<size_t>(number % 2) : 0;
    for (int e = 0; e < options_.experts; ++e) {
      std::byte* at = memory_.data() + slot_ * (half * static_cast<size_t>(options_.experts) + static_cast<size_t>(e));
      // With read-ahead drives carry what they were asked for into the next layer.
      std::vector<uint64_t>& asked = options_.ahead != 0 ? asked_ : layer.drive_bytes;
      layer.records.push_back(options_.placement == "striped" ? Striped(at) : Mirrored(at, asked));
      for (const ReadPart& part : layer.records.back())
        layer.drive_bytes[static_cast<size_t>(part.drive)] += part.request.bytes;
      for (const ReadPart& part : layer.records.back()) asked_[static_cast<size_t>(part.drive)] += part.request.bytes;
    }
    return layer;
  }

  // A random place of the drive's file, as if records of `bytes` lay there one after the other.
  uint64_t RandomOffset(size_t drive, uint64_t bytes) {
    return std::uniform_int_distribution<uint64_t>(0, files_[drive].size() / bytes - 1)(random_) * bytes;
  }

  std::vector<ReadPart> Striped(std::byte* at) {
    std::vector<ReadPart> parts;
    for (const CutPiece& piece : CutRecord(options_.record, kPage, CutRates())) {
      const size_t drive = static_cast<size_t>(piece.drive);
      ReadPart part;
      part.request = {&files_[drive], RandomOffset(drive, piece.bytes()), piece.bytes(), at + piece.begin};
      part.drive = piece.drive;
      parts.push_back(part);
    }
    return parts;
  }

  // The drive that would be through with this record first, given what was already asked of it.
  std::vector<ReadPart> Mirrored(std::byte* at, const std::vector<uint64_t>& asked) {
    size_t best = 0;
    const auto finish = [&](size_t d) { return static_cast<double>(asked[d] + options_.record) / CutRates()[d]; };
    for (size_t d = 1; d < files_.size(); ++d)
      if (finish(d) < finish(best)) best = d;
    ReadPart part;
    part.request = {&files_[best], RandomOffset(best, options_.record), options_.record, at};
    part.drive = static_cast<int32_t>(best);
    return {part};
  }

  void Issue(const Layer& layer, Countdown* countdown) {
    for (size_t i = 0; i < layer.records.size(); ++i) countdown->Begin();
    for (const std::vector<ReadPart>& parts : layer.records)
      scheduler_->Read(parts, IoPriority::kDemand, 0, [countdown](const Status& status) { countdown->End(status); });
  }

  // Total bytes over the sum of the slowest drives' times: what no reading can beat without reading ahead.
  void AddToBound(const Layer& layer) {
    double slowest = 0;
    for (size_t d = 0; d < files_.size(); ++d) {
      slowest = std::max(slowest, static_cast<double>(layer.drive_bytes[d]) / options_.rates[d]);
      drive_seconds_[d] += static_cast<double>(layer.drive_bytes[d]) / options_.rates[d];
    }
    barrier_seconds_ += slowest;
  }

  Result<Json> Measure() {
    drive_seconds_.assign(files_.size(), 0);
    const int total = options_.warm_layers + options_.layers;
    Layer layers[2];
    int64_t start = 0;
    uint64_t busy_from_bytes = 0;
    double busy_from = 0;
    layers[0] = PlanLayer(0);
    Issue(layers[0], &countdowns_[0]);
    for (int i = 0; i < total; ++i) {
      const int here = i % 2, next = 1 - here;
      if (options_.ahead != 0 && i + 1 < total) {
        layers[next] = PlanLayer(i + 1);
        Issue(layers[next], &countdowns_[next]);
      }
      DFIN_TRY_VOID(countdowns_[here].Wait());
      if (i + 1 == options_.warm_layers || (options_.warm_layers == 0 && i == 0)) {
        start = clock_.NowNs();
        busy_from = scheduler_->counters().busy_seconds;
        busy_from_bytes = scheduler_->counters().device_bytes;
      }
      if (i >= options_.warm_layers) AddToBound(layers[here]);
      if (options_.ahead == 0 && i + 1 < total) {
        layers[next] = PlanLayer(i + 1);
        Issue(layers[next], &countdowns_[next]);
      }
    }
    const double seconds = SecondsBetween(start, clock_.NowNs());
    const IoCounters after = scheduler_->counters();
    return ResultJson(seconds, after.busy_seconds - busy_from, after.device_bytes - busy_from_bytes);
  }

  Json ResultJson(double seconds, double busy_seconds, uint64_t device_bytes) const {
    const double limit = std::accumulate(options_.rates.begin(), options_.rates.end(), 0.0);
    const uint64_t bytes =
        options_.record * static_cast<uint64_t>(options_.experts) * static_cast<uint64_t>(options_.layers);
    const double rate = static_cast<double>(bytes) / seconds;
    const double free_seconds = *std::max_element(drive_seconds_.begin(), drive_seconds_.end());
    Json out;
    out["placement"] = options_.placement;
    out["drives"] = files_.size();
    out["ahead"] = options_.ahead != 0;
    out["seed"] = options_.seed;
    out["engine"] = scheduler_->engine_name();
    out["window_seconds"] = seconds;
    out["busy_seconds"] = busy_seconds;
    out["bytes"] = bytes;
    out["device_bytes"] = device_bytes;
    out["bytes_per_second"] = rate;
    out["limit_bytes_per_second"] = limit;
    out["percent_of_limit"] = 100 * rate / limit;
    out["bound_percent"] =
        100 * static_cast<double>(bytes) / (options_.ahead != 0 ? free_seconds : barrier_seconds_) / limit;
    return out;
  }

  const Options options_;
  const std::vector<DirectFile> files_;
  const SteadyClock clock_;
  std::mt19937_64 random_;
  AlignedBuffer memory_;
  uint64_t slot_ = 0;
  double barrier_seconds_ = 0;
  std::vector<double> drive_seconds_;
  std::vector<uint64_t> asked_;  // of each drive, since the start
  Countdown countdowns_[2];
  // Last: its thread ends before what it writes to.
  std::unique_ptr<IoScheduler> scheduler_;
};

// Turns of the probe and of record reads on one drive. Both take their places from the same list of unread ones.
class PlainDisk {
 public:
  PlainDisk(const Options& options, DriveTestFiles files)
      : options_(options), files_(std::move(files)), spans_(files_.sizes(), options.seed) {}

  Result<Json> Run() {
    DFIN_TRY(memory_, AlignedBuffer::Create(std::max(kMostProbeInFlight, RecordBytes() * Experts())));
    std::fill_n(memory_.data(), memory_.size(), std::byte{1});
    DFIN_TRY(std::unique_ptr<IoEngine> engine, CreateIoEngine({.kind = options_.io, .depth = 256}));
    scheduler_ = std::make_unique<IoScheduler>(std::move(engine), IoSchedulerOptions{.drives = {{"disk", 0}}});
    DFIN_TRY_VOID(ChooseSetting());
    Json rounds = Json::array();
    double probe_sum = 0, reads_sum = 0;
    std::vector<double> percents;
    for (int round = 0; round < options_.rounds; ++round) {
      DFIN_TRY(const double probe, ProbeRate(setting_, {options_.seconds, TurnBytes()}));
      DFIN_TRY(const double reads, RecordRate());
      rounds.push_back(Json{{"probe_bytes_per_second", probe}, {"reads_bytes_per_second", reads}});
      probe_sum += 1 / probe;
      reads_sum += 1 / reads;
      percents.push_back(100 * reads / probe);
    }
    std::sort(percents.begin(), percents.end());
    Json out;
    out["rounds"] = rounds;
    out["block_bytes"] = setting_.block_bytes;
    out["depth"] = setting_.depth;
    out["probe_bytes_per_second"] = options_.rounds / probe_sum;
    out["reads_bytes_per_second"] = options_.rounds / reads_sum;
    out["percent_of_probe"] = 100 * probe_sum / reads_sum;
    out["median_percent"] = percents[percents.size() / 2];
    return out;
  }

 private:
  // Records of whole megabytes, so that they come out of the same regions as the probe's blocks.
  uint64_t RecordBytes() const { return UnreadSpans::kRegion; }
  // Of three quarters of all: the choice of the setting takes the rest.
  uint64_t TurnBytes() const { return spans_.total_bytes() * 3 / 4 / (2 * static_cast<uint64_t>(options_.rounds)); }
  uint64_t Experts() const { return static_cast<uint64_t>(options_.experts); }

  Result<double> ProbeRate(const DriveSetting& setting, const CellLimits& limits) {
    DFIN_TRY(const std::unique_ptr<IoEngine> engine, CreateIoEngine({.kind = options_.io, .depth = setting.depth}));
    const ReadStream stream{&files_, &spans_, setting, true};
    DFIN_TRY(const std::vector<StreamRate> rates, RunReads(*engine, {&stream, 1}, limits, memory_.span(), clock_, {}));
    if (rates[0].bytes_per_second <= 0) return Fail(ErrorCode::kInvalidArgument, "the files are read through already");
    return rates[0].bytes_per_second;
  }

  Status ChooseSetting() {
    std::vector<DriveMeasurement> grid;
    const CellLimits limits{options_.seconds / 8, spans_.total_bytes() / 128};
    while (const auto setting = NextSetting(grid, limits)) {
      DFIN_TRY(const double rate, ProbeRate(*setting, limits));
      grid.push_back({setting->block_bytes, setting->depth, true, rate, 0, 0});
    }
    const DriveMeasurement best = BestSetting(grid);
    setting_ = {best.block_bytes, best.depth};
    return {};
  }

  // From the end of the first layer on, as the probe counts from when its queue was filled once; where only one layer
  // fits into a turn, over all of it.
  Result<double> RecordRate() {
    const int64_t turn_start = clock_.NowNs();
    const uint64_t layer_bytes = RecordBytes() * Experts();
    int64_t start = turn_start;
    uint64_t bytes = 0, counted = 0;
    while (counted == 0 ||
           (SecondsBetween(turn_start, clock_.NowNs()) < options_.seconds && bytes + layer_bytes <= TurnBytes())) {
      DFIN_TRY(const uint64_t layer, ReadLayer());
      if (layer == 0) break;
      const bool first = bytes == 0;
      bytes += layer;
      if (first && bytes + layer_bytes <= TurnBytes())
        start = clock_.NowNs();
      else
        counted += layer;
    }
    if (counted == 0) return Fail(ErrorCode::kInvalidArgument, "a turn has no room for records, or all files are read");
    return static_cast<double>(counted) / SecondsBetween(start, clock_.NowNs());
  }

  // Bytes of the records that were read: fewer than a layer's where the files end.
  Result<uint64_t> ReadLayer() {
    uint64_t bytes = 0;
    countdown_.Begin();
    for (uint64_t e = 0; e < Experts(); ++e) {
      const auto span = spans_.Next(RecordBytes());
      if (!span) break;
      countdown_.Begin();
      scheduler_->Read({&files_.file(span->file, true), span->offset, span->bytes, memory_.data() + e * RecordBytes()},
                       0, IoPriority::kDemand, 0, [this](const Status& status) { countdown_.End(status); });
      bytes += span->bytes;
    }
    countdown_.End({});
    DFIN_TRY_VOID(countdown_.Wait());
    return bytes;
  }

  const Options options_;
  const DriveTestFiles files_;
  UnreadSpans spans_;
  const SteadyClock clock_;
  AlignedBuffer memory_;
  DriveSetting setting_;
  Countdown countdown_;
  // Last: its thread ends before what it writes to.
  std::unique_ptr<IoScheduler> scheduler_;
};

Result<Json> Run(const Options& options) {
  if (!options.plain.empty()) {
    std::vector<std::string> paths;
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(options.plain, failed))
      if (entry.is_regular_file() && entry.file_size() >= kSmallestTestFile) paths.push_back(entry.path().string());
    DFIN_TRY(DriveTestFiles files, DriveTestFiles::Existing(paths));
    return PlainDisk(options, std::move(files)).Run();
  }
  const size_t drives = options.files.size();
  if (drives == 0 || options.rates.size() != drives ||
      (!options.cut_rates.empty() && options.cut_rates.size() != drives))
    return Fail(ErrorCode::kInvalidArgument, "expected one rate for each of ", drives, " files");
  std::vector<DirectFile> files;
  for (const std::string& path : options.files) {
    DFIN_TRY(DirectFile file, DirectFile::Open(path));
    if (file.size() < options.record) return Fail(ErrorCode::kInvalidArgument, path, ": shorter than a record");
    files.push_back(std::move(file));
  }
  return Ladder(options, std::move(files)).Run();
}

int Main(int argc, char** argv) {
  Options o;
  CLI::App app("Reads layers of expert records through the I/O scheduler.");
  app.add_option("--file", o.files, "A large file on each drive");
  app.add_option("--rate", o.rates, "Limit of each drive, bytes a second");
  app.add_option("--cut-rate", o.cut_rates, "Measured rate of each drive (default: the limits)");
  app.add_option("--placement", o.placement, "striped or mirrored")->check(CLI::IsMember({"striped", "mirrored"}));
  app.add_option("--record", o.record, "Bytes of a record, a multiple of 4096");
  app.add_option("--experts", o.experts, "Records a layer")->check(CLI::Range(1, 1024));
  app.add_option("--warm-layers", o.warm_layers, "Layers before the window")->check(CLI::Range(1, 1000));
  app.add_option("--layers", o.layers, "Layers in the window")->check(CLI::Range(1, 100000));
  app.add_option("--ahead", o.ahead, "1: the next layer is asked for before this one is there")
      ->check(CLI::Range(0, 1));
  app.add_option("--seed", o.seed, "Of the places that are read");
  app.add_option("--io", o.io, "auto, uring or pread");
  app.add_option("--chunk", o.chunk, "Bytes of a chunk (default: the scheduler's choice)");
  app.add_option("--window", o.window, "Bytes in flight on a drive (default: the scheduler's choice)");
  app.add_option("--plain", o.plain, "Folder on one drive whose large files are read in turns with the probe");
  app.add_option("--rounds", o.rounds, "With --plain: turns")->check(CLI::Range(1, 1000));
  app.add_option("--seconds", o.seconds, "With --plain: of each turn")->check(CLI::Range(0.1, 600.0));
  CLI11_PARSE(app, argc, argv);
  const Result<Json> result = Run(o);
  if (!result) {
    std::fprintf(stderr, "drive_ladder_reads: %s\n", result.error().message().c_str());
    return 1;
  }
  std::printf("%s\n", DumpJson(*result).c_str());
  return 0;
}

}  // namespace
}  // namespace deltafin

int main(int argc, char** argv) { return deltafin::Main(argc, argv); }
