#include "pack/shard_verifier.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "base/thread_pool.h"
#include "checkpoint/expert_set.h"
#include "checkpoint/integrity.h"
#include "checkpoint/model_files.h"
#include "checkpoint/unfinished_download.h"
#include "pack/listed_verifier.h"
#include "pack/pack_source.h"
#include "pack/set_files.h"
#include "pack/shard_stream.h"

namespace deltafin {
namespace {

constexpr int kMostThreads = 8;
constexpr uint64_t kWindowBytes = uint64_t{384} << 20;
constexpr size_t kMostInWindow = 256;
constexpr uint64_t kNarrowBytes = uint64_t{64} << 10;  // how closely an unreadable range is named

class ShardVerifier {
 public:
  ShardVerifier(const VerifyOptions& options, const BadRecordFn& on_bad, CancelToken cancel)
      : options_(options), on_bad_(on_bad), cancel_(cancel) {}
  Result<VerifyReport> Run(const VerifyProgressFn& progress);

 private:
  struct Finding {
    std::string what;  // "" when all is well
    uint64_t offset = 0, bytes = 0;
  };
  Status Open();
  void TellAbsent();
  void OpenSet();
  Status CheckListed(const VerifyProgressFn& progress);
  Finding Check(const SourceExpert& expert, const std::byte* buffer, MutBytes scratch) const;
  void Unreadable(const SourceExpert& expert, const Status& status);
  void Bad(const SourceExpert& expert, Finding finding);

  const VerifyOptions& options_;
  const BadRecordFn& on_bad_;
  const CancelToken cancel_;
  PackSource source_;
  uint64_t record_bytes_ = 0, packed_bytes_ = 0;
  ExpertList experts_;
  ShardFiles files_;
  std::unique_ptr<IoScheduler> io_;
  std::optional<ExpertSetManifest> manifest_;  // of the set to compare with
  ExpertSetIndex index_;
  bool all_listed_ = true;  // every shard is in the folder's list
  VerifyReport report_;
};

Status ShardVerifier::Open() {
  DFIN_TRY(source_, PackSource::Open(options_.model, options_.state_folder, options_.io, cancel_));
  record_bytes_ = static_cast<uint64_t>(source_.geometry().record_bytes());
  for (const SourceExpert& expert : source_.experts) experts_.push_back(&expert);
  DFIN_TRY(files_, OpenShards(source_, experts_));
  DFIN_TRY(io_, MakeScheduler(options_.io, options_.model, {}));
  TellAbsent();
  OpenSet();
  return {};
}

// Experts that are not in the shards are not checked, and it is said where they are.
void ShardVerifier::TellAbsent() {
  report_.records_absent = source_.positions() - source_.experts.size();
  if (std::string unfinished = UnfinishedDownload(options_.model); !unfinished.empty())
    report_.notes.push_back(std::move(unfinished));
  uint64_t moved = 0;
  std::map<std::string, std::pair<uint64_t, std::string>> sets;  // experts, folders
  for (const MovedShard& shard : source_.moved) {
    moved += shard.positions.size();
    auto& [count, folders] = sets[shard.set];
    count += shard.positions.size();
    folders.clear();
    for (const std::string& folder : shard.folders) folders += Cat(folders.empty() ? " (in " : ", ", folder);
  }
  for (const auto& [set, about] : sets)
    report_.notes.push_back(Cat(about.first, " of ", source_.positions(), " experts were moved to expert set ", set,
                                about.second, about.second.empty() ? "" : " then)",
                                ": not checked here: `deltafin verify --experts` with its folders checks that set"));
  if (report_.records_absent > moved)
    report_.notes.push_back(Cat(report_.records_absent - moved, " of ", source_.positions(),
                                " experts are not in the shards that are there: not checked"));
}

void ShardVerifier::OpenSet() {
  const Result<std::vector<std::string>> folders = FindExpertFolders(options_.model, options_.state_folder);
  if (!folders || folders->empty()) return;
  Result<SetCandidate> found = FindNewest(*folders);
  Result<ExpertSetIndex> index =
      found ? LoadIndex(found->manifest, found->folders) : Result<ExpertSetIndex>(Failure(found.error()));
  if (!index) {
    report_.notes.push_back("the shards are not compared with the expert set: " + index.error().message());
    return;
  }
  if (!source_.MayBe(found->manifest.model_id)) return;
  manifest_ = std::move(found->manifest);
  index_ = std::move(*index);
  packed_bytes_ = AlignUp(PackedRecordBytes(source_.geometry(), 3), manifest_->page);
}

ShardVerifier::Finding ShardVerifier::Check(const SourceExpert& expert, const std::byte* buffer,
                                            MutBytes scratch) const {
  const DirectFile& file = files_[static_cast<size_t>(expert.shard)];
  const ExpertGeometry geometry = source_.geometry();
  const ExpertWeights weights = ViewSource(source_, expert, file.alignment(), buffer);
  if (const std::optional<BadScale> bad = FindBadScale(weights)) {
    const auto groups = static_cast<uint64_t>(geometry.cols(bad->matrix) / kMxfp4Group);
    return {Cat(ToString(bad->matrix), ".weight_scale, row ", bad->row, ": a scale of 255 (not a number)"),
            expert.offset + expert.layout.scale_offset[static_cast<size_t>(bad->matrix)] +
                static_cast<uint64_t>(bad->row) * groups,
            groups};
  }
  if (!manifest_ || index_.entries[expert.position].slot == kNoSlot) return {};
  const ExpertSetEntry& entry = index_.entries[expert.position];
  const std::array<const uint8_t*, 3> scales = {weights.w1.scale, weights.w2.scale, weights.w3.scale};
  bool same = true;
  for (size_t m = 0; m < scales.size(); ++m) {
    const auto count = static_cast<size_t>(geometry.scale_bytes(static_cast<ExpertMatrix>(m)));
    if (entry.bases[m] != kWholeScales)
      same = same && CompactBase(std::as_bytes(std::span(scales[m], count))) == entry.bases[m];
  }
  if (same) {
    const uint64_t used = PackedRecordBytes(geometry, WholeMatrices(entry.bases));
    const uint64_t bytes = manifest_->tables[entry.table].record_bytes;
    PackRecord(geometry, weights, entry.bases, scratch.data());
    std::memset(scratch.data() + used, 0, static_cast<size_t>(bytes - used));
    same = Hash64(Bytes(scratch).first(static_cast<size_t>(bytes))) == entry.hash;
  }
  if (same) return {};
  return {Cat("differs from what was packed (expert set, generation ", manifest_->generation,
              "): verify the set to see which of the two is damaged"),
          expert.offset, record_bytes_};
}

void ShardVerifier::Bad(const SourceExpert& expert, Finding finding) {
  BadRecord bad;
  bad.key = source_.Key(expert.position);
  bad.file = source_.shards[static_cast<size_t>(expert.shard)];
  bad.offset = finding.offset;
  bad.bytes = finding.bytes;
  bad.what = std::move(finding.what);
  ++report_.bad;
  on_bad_(bad);
}

Status ShardVerifier::CheckListed(const VerifyProgressFn& progress) {
  const Result<std::optional<ModelFiles>> list = KnownModelFiles(options_.model);
  if (!list) {
    BadRecord bad;
    bad.file = Cat(options_.model, "/", kModelFilesName);
    bad.what =
        Cat(list.error().message(), ": repair: the `deltafin setup` command that made this folder writes it again");
    ++report_.bad;
    on_bad_(bad);
  }
  report_.listed = list && *list;
  if (!report_.listed) return {};
  for (int32_t i = 0; i < static_cast<int32_t>(source_.shards.size()); ++i)
    all_listed_ = all_listed_ && (*list)->Find(source_.ShardName(i)) != nullptr;
  return VerifyListed(options_, **list, on_bad_, progress, cancel_, report_);
}

// Finds the ranges, and joins neighbours.
void ShardVerifier::Unreadable(const SourceExpert& expert, const Status& status) {
  const DirectFile& file = files_[static_cast<size_t>(expert.shard)];
  const Result<AlignedBuffer> memory = AlignedBuffer::Create(WidenedBytesAnywhere(kNarrowBytes, file.alignment()));
  Finding finding;
  bool any = false;
  const uint64_t end = expert.offset + record_bytes_;
  for (uint64_t at = expert.offset; memory && at < end && !cancel_.cancelled(); at += kNarrowBytes) {
    const uint64_t bytes = std::min(kNarrowBytes, end - at);
    ReadPart part;
    part.request = {&file, at, bytes, memory->data()};
    if (ReadNow(*io_, std::span(&part, 1))) continue;
    any = true;
    if (finding.bytes > 0 && finding.offset + finding.bytes == at) {
      finding.bytes += bytes;
      continue;
    }
    if (finding.bytes > 0) Bad(expert, finding);
    finding = {"read failed: " + status.error().message(), at, bytes};
  }
  if (!any) finding = {"read failed once: " + status.error().message(), expert.offset, record_bytes_};
  Bad(expert, finding);
}

Result<VerifyReport> ShardVerifier::Run(const VerifyProgressFn& progress) {
  DFIN_TRY_VOID(Open());
  DFIN_TRY_VOID(CheckListed(progress));
  report_.compared_with_set = manifest_.has_value();
  if (report_.listed && all_listed_ && !manifest_) {
    // The checksums say more than the scales.
    report_.records = experts_.size();
    return std::move(report_);
  }
  const uint64_t listed_bytes = report_.bytes;
  ThreadPool pool(std::min(UsableCores(), kMostThreads));
  const auto at_once = static_cast<size_t>(pool.threads());
  const size_t window =
      std::clamp<size_t>(static_cast<size_t>(kWindowBytes / record_bytes_), 3 * at_once, kMostInWindow);
  DFIN_TRY(const auto stream, ReadExperts(*io_, source_, experts_, files_, window));
  DFIN_TRY(const AlignedBuffer scratch, AlignedBuffer::Create(std::max<uint64_t>(1, packed_bytes_) * at_once));
  for (;;) {
    std::vector<RecordStream::Item> items;
    while (items.size() < at_once) {
      DFIN_TRY(const std::optional<RecordStream::Item> item, stream->Next(cancel_));
      if (!item) break;
      items.push_back(*item);
    }
    if (items.empty()) return std::move(report_);
    std::vector<Finding> findings(items.size());
    pool.ParallelFor(static_cast<int64_t>(items.size()), 1, [&](int64_t begin, int64_t end, int) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
        if (items[i].status)
          findings[i] =
              Check(*experts_[items[i].index], items[i].buffer,
                    scratch.span().subspan(i * static_cast<size_t>(packed_bytes_), static_cast<size_t>(packed_bytes_)));
    });
    for (size_t i = 0; i < items.size(); ++i) {
      const SourceExpert& expert = *experts_[items[i].index];
      stream->Recycle(items[i]);
      ++report_.records;
      report_.bytes += record_bytes_;
      if (!items[i].status)
        Unreadable(expert, items[i].status);
      else if (!findings[i].what.empty())
        Bad(expert, findings[i]);
    }
    if (progress) progress(report_.bytes, listed_bytes + experts_.size() * record_bytes_);
  }
}

}  // namespace

Result<VerifyReport> VerifyShards(const VerifyOptions& options, const BadRecordFn& on_bad,
                                  const VerifyProgressFn& progress, CancelToken cancel) {
  if (options.repair)
    return Fail(ErrorCode::kInvalidArgument, "--repair: only an expert set can be repaired, from its second copies or ",
                "from the shards; a damaged shard is to be downloaded again");
  return ShardVerifier(options, on_bad, cancel).Run(progress);
}

}  // namespace deltafin
