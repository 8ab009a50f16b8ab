// A few records of every place that weights are read from, against their checksums. All of them: `deltafin verify`.
#include <algorithm>
#include <cmath>

#include "base/aligned_buffer.h"
#include "base/units.h"
#include "checkpoint/dense_set.h"
#include "checkpoint/expert_set.h"
#include "checkpoint/integrity.h"
#include "checkpoint/model_files.h"
#include "doctor/checks.h"
#include "doctor/download.h"
#include "doctor/readers.h"
#include "pack/model_file_check.h"
#include "pack/set_files.h"

namespace deltafin {
namespace {

// Read in full up to here, else evenly spread samples of so much.
constexpr uint64_t kSampleBytes = 512 * kMiB;
constexpr size_t kMostTold = 10;

// Numbers of the samples to take of `count` things of `bytes` each.
std::vector<int64_t> Spread(int64_t count, uint64_t bytes) {
  const auto most = static_cast<int64_t>(std::max<uint64_t>(kSampleBytes / std::max<uint64_t>(bytes, 1), 4));
  const int64_t taken = std::min(count, most);
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < taken; ++i) samples.push_back(i * count / taken);
  return samples;
}

Remedy VerifyCommand(const Subject& subject, std::string advice = "") {
  std::string command = Cat("deltafin verify --repair --model ", Quoted(subject.options.model));
  if (!subject.experts_noted)
    for (const std::string& folder : subject.experts) command += Cat(" --experts ", Quoted(folder));
  return ByCommand(std::move(command), std::move(advice));
}

Remedy PackAgain(const Subject& subject, std::string advice) {
  return ByCommand(
      Cat("deltafin pack --dense --model ", Quoted(subject.options.model), " --to ", Quoted(subject.options.dense)),
      std::move(advice));
}

struct ExpertSamples {
  const ExpertSet& set;
  IoScheduler& io;
  AlignedBuffer buffer;
  uint64_t bytes = 0;
  size_t bad = 0;

  // Where the record is not what was packed: ranges of it.
  std::vector<RecordRange> BadRanges(ExpertKey key) const {
    const uint64_t record = set.Table(set.Entry(key)).record_bytes, chunk = set.manifest().checksum_chunk;
    const std::span<const uint64_t> expected = set.ChunkHashes(key);
    std::vector<RecordRange> ranges;
    for (uint64_t c = 0; c * chunk < record && c < expected.size(); ++c) {
      const RecordRange range{c * chunk, std::min(record, (c + 1) * chunk)};
      if (Hash64(Bytes(buffer.data() + range.begin, static_cast<size_t>(range.end - range.begin))) != expected[c])
        ranges.push_back(range);
    }
    if (ranges.empty()) ranges.push_back({0, record});
    return ranges;
  }

  void Check(const Subject& subject, ExpertKey key, Findings& findings) {
    const ExpertSetEntry& entry = set.Entry(key);
    const uint64_t record = set.Table(entry).record_bytes;
    ReadPart parts[IoScheduler::kMaxParts];
    const size_t count = set.Parts(key, buffer.data(), 0, parts);
    for (size_t i = 0; i < count; ++i) parts[i].copy = {};  // the first copy is what is checked
    const Status read = ReadNow(io, std::span(parts).first(count));
    const std::string who = NameOf(key) + ": ";
    if (!read) {
      if (++bad <= kMostTold)
        findings.Fault("drive.read-error", who + read.error().message(), "the drive does not give its bytes back",
                       VerifyCommand(subject, "first look at the drive (dmesg, smartctl -a)"));
      return;
    }
    bytes += record;
    if (Hash64(Bytes(buffer.data(), static_cast<size_t>(record))) == entry.hash) return;
    if (++bad > kMostTold) return;
    for (const RecordRange range : BadRanges(key))
      findings.Fault("experts.record-damaged", Cat(who, set.Where(key, range), ": checksum differs"),
                     "wrong weights give wrong answers", VerifyCommand(subject));
  }
};

}  // namespace

void CheckExpertSamples(const Subject& subject, Findings& findings) {
  if (subject.experts.empty() || !subject.report || !subject.report->spec) return;
  const Result<ExpertSet> set = ExpertSet::Open(subject.experts, *subject.report->spec, ExpertSet::Need::kAnyRecords);
  if (!set) return;
  std::vector<ExpertKey> keys;
  uint64_t largest = 0;
  const ExpertSetManifest& manifest = set->manifest();
  for (size_t p = 0; p < set->index().entries.size(); ++p) {
    if (set->index().entries[p].slot == kNoSlot) continue;
    keys.push_back(KeyAt(manifest, p));
    largest = std::max(largest, set->Table(set->index().entries[p]).record_bytes);
  }
  if (keys.empty()) return;
  Result<AlignedBuffer> buffer = AlignedBuffer::Create(largest);
  IoSchedulerOptions options;
  options.drives = set->drives();
  Result<std::unique_ptr<IoEngine>> engine = CreateIoEngine({.kind = "auto", .depth = 64});
  if (!buffer || !engine) return;
  IoScheduler io(std::move(*engine), std::move(options));
  ExpertSamples samples{*set, io, std::move(*buffer)};
  const std::vector<int64_t> taken = Spread(static_cast<int64_t>(keys.size()), largest);
  for (const int64_t i : taken) {
    if (subject.options.cancel.cancelled()) return;
    samples.Check(subject, keys[static_cast<size_t>(i)], findings);
  }
  const std::string text = Cat(taken.size(), " of ", keys.size(), " experts read, ", FormatBytes(samples.bytes));
  if (samples.bad == 0)
    findings.Ok("experts.sample", text + ", all as packed");
  else if (samples.bad > kMostTold)
    findings.Fault("experts.record-damaged", Cat(text, ", ", samples.bad, " of them damaged"),
                   "wrong weights give wrong answers", VerifyCommand(subject));
}

void CheckDenseSamples(const Subject& subject, Findings& findings) {
  if (subject.options.dense.empty() || !subject.weights_complete()) return;
  const Result<Readers> readers = Readers::Open(subject, {subject.options.dense});
  if (!readers) return;
  const Result<DenseSet> set = DenseSet::Open(subject.options.dense, *readers->checkpoint);
  if (!set) return;
  const std::vector<DenseUnit>& units = set->manifest().units;
  uint64_t largest = 1;
  for (const DenseUnit& unit : units) largest = std::max(largest, unit.bytes);
  const Result<AlignedBuffer> buffer = AlignedBuffer::Create(largest + AlignedBuffer::kAlignment);
  if (!buffer) return;
  const std::vector<int64_t> taken = Spread(static_cast<int64_t>(units.size()), largest);
  uint64_t bytes = 0;
  for (const int64_t i : taken) {
    if (subject.options.cancel.cancelled()) return;
    const DenseUnit& unit = units[static_cast<size_t>(i)];
    const ReadPart part{{&set->file(unit.unit), 0, unit.bytes, buffer->data()}, readers->first_other};
    const Status read = ReadNow(*readers->io, std::span(&part, 1));
    bytes += unit.bytes;
    if (!read)
      findings.Fault("drive.read-error", read.error().message(), "the drive does not give its bytes back",
                     PackAgain(subject, "first look at the drive (dmesg, smartctl -a)"));
    else if (Hash64(Bytes(buffer->data(), static_cast<size_t>(unit.bytes))) != unit.hash)
      findings.Fault("dense.damaged", set->file(unit.unit).path() + ": checksum differs",
                     "wrong weights give wrong answers", PackAgain(subject, "it writes only what is damaged"));
  }
  if (!findings.has_faults())
    findings.Ok("dense.sample",
                Cat(taken.size(), " of ", units.size(), " files read, ", FormatBytes(bytes), ", all as packed"));
}

namespace {

// Only whole shards have checksums: the smallest ones, as many as fit into a sample.
void CheckListedShards(const Subject& subject, Findings& findings) {
  const FolderReport& report = *subject.report;
  const Result<std::optional<ModelFiles>> known = KnownModelFiles(report.folder);
  if (!known) {
    findings.Warning("model.list-damaged", known.error().message(), "shards cannot be compared with their checksums",
                     FetchMissing(subject));
    return;
  }
  std::vector<const ModelFile*> listed;
  for (const ShardReport& shard : report.shards) {
    const ModelFile* const file = *known ? (*known)->Find(shard.name) : nullptr;
    // One that gave its experts away is another file now; one that is not whole lies elsewhere.
    const bool here = subject.host.Look(report.folder + "/" + shard.name).kind == PathFacts::Kind::kFile;
    if (file != nullptr && here && shard.experts_moved_to.empty()) listed.push_back(file);
  }
  if (listed.empty()) {
    findings.Note("model.no-checksums", Cat(report.folder, ": its shards have no checksums here"),
                  "a flipped bit in them cannot be found; `deltafin setup` keeps a list of them");
    return;
  }
  std::sort(listed.begin(), listed.end(), [](const auto* a, const auto* b) { return a->bytes < b->bytes; });
  uint64_t bytes = 0;
  size_t hashed = 0;
  for (const ModelFile* file : listed) {
    if (subject.options.cancel.cancelled() || bytes + file->bytes > kSampleBytes) break;
    const std::string path = report.folder + "/" + file->name;
    const Status right = CheckModelFile(
        path, *file, [] {}, subject.options.cancel);
    bytes += file->bytes;
    ++hashed;
    if (!right && right.error().code() == ErrorCode::kCorrupt)
      findings.Fault("model.shard-altered", right.error().message(), "wrong weights give wrong answers",
                     FetchAgain(subject, path));
    else if (!right && right.error().code() != ErrorCode::kCancelled)
      findings.Fault("drive.read-error", right.error().message(), "the drive does not give its bytes back",
                     ByAdvice("look at the drive (dmesg, smartctl -a); fetch the shard again onto a sound one"));
  }
  const std::string text = Cat(hashed, " of ", listed.size(), " shards compared with their checksums");
  if (!findings.has_faults() && hashed == listed.size())
    findings.Ok("model.checksums", text);
  else if (!findings.has_faults())
    findings.Note("model.checksums", Cat(text, hashed == 0 ? ": each is larger than a sample" : ": the smallest"),
                  Cat("all of them: deltafin verify --shards --model ", Quoted(report.folder)));
}

}  // namespace

// Whether the beginning, middle and end of each shard can be read, and some of them whole.
void CheckShardSamples(const Subject& subject, Findings& findings) {
  if (!subject.weights_complete()) return;
  const Result<Readers> readers = Readers::Open(subject, {});
  if (!readers) return;
  constexpr uint64_t kBytes = 256 * kKiB;
  const Result<AlignedBuffer> buffer = AlignedBuffer::Create(2 * kBytes);
  if (!buffer) return;
  uint64_t bytes = 0;
  for (int s = 0; s < readers->checkpoint->shard_count(); ++s) {
    const DirectFile& file = readers->checkpoint->shard(s);
    const uint64_t piece = std::min(kBytes, file.size());
    for (const uint64_t offset : {uint64_t{0}, (file.size() - piece) / 2, file.size() - piece}) {
      if (subject.options.cancel.cancelled() || piece == 0) return;
      const ReadPart part{{&file, offset, piece, buffer->data()}, readers->checkpoint->shard_drive(s)};
      const Status read = ReadNow(*readers->io, std::span(&part, 1));
      bytes += piece;
      if (!read)
        findings.Fault("drive.read-error", read.error().message(), "the drive does not give its bytes back",
                       ByAdvice("look at the drive (dmesg, smartctl -a); fetch the shard again onto a sound one"));
    }
  }
  if (!findings.has_faults())
    findings.Ok("model.sample", Cat(readers->checkpoint->shard_count(), " shards can be read (three places each, ",
                                    FormatBytes(bytes), ")"));
  CheckListedShards(subject, findings);
}

}  // namespace deltafin
