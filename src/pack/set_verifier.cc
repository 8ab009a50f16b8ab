#include "pack/set_verifier.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/json.h"
#include "base/units.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/integrity.h"
#include "pack/journal.h"
#include "pack/record_stream.h"

namespace deltafin {
namespace {

constexpr int kMostThreads = 8;
constexpr uint64_t kWindowBytes = uint64_t{384} << 20;
constexpr size_t kMostInWindow = 256;
constexpr uint64_t kScanBytes = uint64_t{4} << 20;

// First and last byte that differ; a file of another length differs at its end.
std::pair<uint64_t, uint64_t> DifferingRange(Bytes got, Bytes expected) {
  const size_t common = std::min(got.size(), expected.size());
  size_t begin = 0, end = std::max(got.size(), expected.size());
  while (begin < common && got[begin] == expected[begin]) ++begin;
  if (got.size() == expected.size())
    while (end > begin + 1 && got[end - 1] == expected[end - 1]) --end;
  return {begin, std::max(end, begin + 1)};
}

}  // namespace

void SetVerifier::Bad(const BadRecord& bad) {
  ++report_.bad;
  report_.repaired += bad.repaired ? 1 : 0;
  on_bad_(bad);
}

// A folder whose manifest is damaged is known by the files in it.
Status SetVerifier::MatchFolders() {
  const ExpertSetManifest& m = found_.manifest;
  for (size_t d = 0; d < found_.folders.size(); ++d) {
    if (!found_.folders[d].empty()) continue;
    for (const std::string& folder : options_.experts) {
      const bool taken = std::find(found_.folders.begin(), found_.folders.end(), folder) != found_.folders.end();
      bool has_files = !taken && FileExists(folder + "/" + m.index_file);
      for (const ExpertTable& table : m.tables)
        for (const ExpertPieceFile& piece : table.pieces)
          if (piece.cut.drive == static_cast<int32_t>(d))
            has_files = has_files && FileExists(folder + "/" + piece.file);
      if (!has_files) continue;
      found_.folders[d] = folder;
      break;
    }
    if (found_.folders[d].empty())
      return Fail(ErrorCode::kNotFound, "expert set, generation ", m.generation, ": drive ", d, " ('", m.drives[d].name,
                  "'): expected its folder among those given, got none of them: is it mounted?");
  }
  return {};
}

void SetVerifier::CheckSmallFile(const std::string& path, Bytes expected, const char* what) {
  const auto same = [&](const Result<std::string>& got) {
    return got && std::ranges::equal(std::as_bytes(std::span(*got)), expected);
  };
  const Result<std::string> got = ReadWholeFile(path, uint64_t{1} << 30);
  report_.bytes += expected.size();
  if (same(got)) return;
  BadRecord bad;
  bad.file = path;
  bad.bytes = expected.size();
  bad.what = got ? Cat("the ", what, " differs from the other drives'") : "read failed: " + got.error().message();
  if (got) {
    const auto [begin, end] = DifferingRange(std::as_bytes(std::span(*got)), expected);
    bad.offset = begin;
    bad.bytes = end - begin;
  }
  if (options_.repair) {
    const Status repaired = PublishFile(options_.hook, path, expected);
    bad.repaired = repaired && same(ReadWholeFile(path, uint64_t{1} << 30));
    bad.repair_note = repaired ? "from another drive" : repaired.error().message();
  }
  Bad(bad);
}

void SetVerifier::CheckManifests() {
  ExpertSetManifest own = found_.manifest;
  const std::vector<std::byte> index = index_.ToBytes(own);
  for (size_t d = 0; d < found_.folders.size(); ++d) {
    own.this_drive = static_cast<int32_t>(d);
    const std::string text = own.ToText();
    CheckSmallFile(found_.folders[d] + "/" + ManifestFileName(own.generation), std::as_bytes(std::span(text)),
                   "manifest");
    CheckSmallFile(found_.folders[d] + "/" + own.index_file, index, "index");
  }
}

Result<bool> SetVerifier::Open() {
  const auto whole_file_is_bad = [&](const std::string& path, const std::string& what) {
    BadRecord bad;
    bad.file = path;
    if (const Result<std::string> text = ReadWholeFile(path, uint64_t{1} << 30)) bad.bytes = text->size();
    bad.what = what;
    if (options_.repair) bad.repair_note = "no other drive has a sound one";
    Bad(bad);
  };
  Result<SetCandidate> found = FindNewest(options_.experts);
  if (!found) {
    if (found.error().code() != ErrorCode::kCorrupt) return Failure(std::move(found.error()));
    for (const std::string& folder : options_.experts)
      for (const std::string& name : ListFiles(folder, kManifestPrefix))
        if (name.ends_with(".json")) whole_file_is_bad(folder + "/" + name, found.error().message());
    if (report_.bad == 0) return Failure(std::move(found.error()));
    return false;
  }
  found_ = std::move(*found);
  DFIN_TRY_VOID(MatchFolders());
  Result<ExpertSetIndex> index = LoadIndex(found_.manifest, found_.folders);
  if (!index) {
    for (const std::string& folder : found_.folders)
      whole_file_is_bad(folder + "/" + found_.manifest.index_file, index.error().message());
    return false;
  }
  index_ = std::move(*index);
  DFIN_TRY(set_, SetFiles::Open(found_.manifest, found_.folders));
  if (Result<PackSource> source = PackSource::Open(options_.model, options_.state_folder, options_.io, cancel_)) {
    if (source->MayBe(found_.manifest.model_id))
      source_ = std::move(*source);
    else
      report_.notes.push_back("the set was packed from another model than " + options_.model +
                              ", so its shards cannot repair it");
  } else if (source.error().code() == ErrorCode::kCancelled) {
    return Failure(std::move(source.error()));
  } else {
    report_.notes.push_back("the shards cannot be used for repair: " + source.error().message());
  }
  DFIN_TRY(io_, MakeScheduler(options_.io, options_.model, found_.folders));
  DFIN_TRY(doctor_, SetDoctor::Create(options_, *set_, index_, *io_, source_ ? &*source_ : nullptr));
  pool_ = std::make_unique<ThreadPool>(std::min(UsableCores(), kMostThreads));
  for (const ExpertTable& table : found_.manifest.tables)
    total_ += (uint64_t{table.slots} + table.replica_slots) * table.record_bytes;
  return true;
}

Status SetVerifier::CheckRecords(CopyKind kind) {
  const auto slot_of = [&](uint32_t p) {
    return kind == CopyKind::kPrimary ? index_.entries[p].slot : index_.entries[p].replica_slot;
  };
  const auto bytes_of = [&](uint32_t p) { return found_.manifest.tables[index_.entries[p].table].record_bytes; };
  std::vector<uint32_t> list;
  uint64_t largest = found_.manifest.page;
  for (uint32_t p = 0; p < index_.entries.size(); ++p) {
    if (slot_of(p) == kNoSlot) continue;
    list.push_back(p);
    largest = std::max(largest, bytes_of(p));
  }
  std::sort(list.begin(), list.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(index_.entries[a].table, slot_of(a)) < std::pair(index_.entries[b].table, slot_of(b));
  });
  std::vector<bool> missing(list.size(), false);
  const auto parts = [&](size_t i, std::byte* buffer, std::span<ReadPart> out) -> size_t {
    size_t count = 0;
    const uint32_t p = list[i];
    missing[i] = !set_->AddParts({index_.entries[p].table, kind, slot_of(p), 0, bytes_of(p)}, buffer, 1, out, &count);
    return missing[i] ? 0 : count;
  };
  const auto at_once = static_cast<size_t>(pool_->threads());
  const size_t window = std::clamp<size_t>(static_cast<size_t>(kWindowBytes / largest), 3 * at_once, kMostInWindow);
  DFIN_TRY(const auto stream, RecordStream::Create(*io_, list.size(), window, largest, parts));
  const BadRecordFn tell = [&](const BadRecord& bad) { Bad(bad); };
  for (;;) {
    std::vector<RecordStream::Item> items;
    while (items.size() < at_once) {
      DFIN_TRY(const std::optional<RecordStream::Item> item, stream->Next(cancel_));
      if (!item) break;
      items.push_back(*item);
    }
    if (items.empty()) return {};
    std::vector<char> good(items.size(), 0);
    pool_->ParallelFor(static_cast<int64_t>(items.size()), 1, [&](int64_t begin, int64_t end, int) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        if (!items[i].status || missing[items[i].index]) continue;
        const uint32_t p = list[items[i].index];
        good[i] = Hash64(Bytes(items[i].buffer, static_cast<size_t>(bytes_of(p)))) == index_.entries[p].hash;
      }
    });
    for (size_t i = 0; i < items.size(); ++i) {
      const uint32_t p = list[items[i].index];
      stream->Recycle(items[i]);
      report_.records += kind == CopyKind::kPrimary ? 1 : 0;
      report_.bytes += bytes_of(p);
      if (!good[i]) DFIN_TRY_VOID(doctor_->Examine(p, kind, tell));
    }
    if (progress_) progress_(report_.bytes, std::max(total_, report_.bytes));
  }
}

std::vector<SetVerifier::FileUse> SetVerifier::Files() const {
  std::map<std::string, FileUse> files;
  for (size_t t = 0; t < found_.manifest.tables.size(); ++t)
    for (const CopyKind kind : {CopyKind::kPrimary, CopyKind::kReplica})
      for (size_t p = 0; p < set_->pieces(t, kind).size(); ++p) {
        const ExpertPieceFile& piece = set_->pieces(t, kind)[p];
        FileUse& use = files[set_->Path(t, kind, p)];
        use.table = t;
        use.kind = kind;
        use.path = set_->Path(t, kind, p);
        use.stride = piece.stride;
        use.used.emplace_back(piece.cut.begin - piece.file_begin, piece.cut.end - piece.file_begin);
      }
  std::vector<FileUse> out;
  for (auto& [path, use] : files) {
    std::sort(use.used.begin(), use.used.end());
    out.push_back(std::move(use));
  }
  return out;
}

Status SetVerifier::CheckUnused() {
  for (const std::string& folder : found_.folders)
    if (FileExists(folder + "/" + kJournalName)) {
      report_.notes.push_back(folder +
                              ": an unfinished pack or rebalance writes beyond the set, so bytes that the set "
                              "does not use were not checked: finish it by giving its command again");
      return {};
    }
  for (const FileUse& use : Files()) DFIN_TRY_VOID(CheckUnusedOf(use));
  return {};
}

Status SetVerifier::CheckUnusedOf(const FileUse& use) {
  const ExpertTable& table = found_.manifest.tables[use.table];
  const uint64_t slots = use.kind == CopyKind::kPrimary ? table.slots : table.replica_slots;
  Result<DirectFile> file = DirectFile::Open(use.path);
  if (!file) return {};  // its records have been told
  if (file->size() > slots * use.stride) {
    BadRecord bad;
    bad.file = use.path;
    bad.offset = slots * use.stride;
    bad.bytes = file->size() - bad.offset;
    bad.what = "bytes after the last record";
    if (options_.repair) {
      const Result<std::unique_ptr<OutputFile>> output = OutputFile::Open(use.path, options_.hook);
      const Status cut = output ? (*output)->SetSize(bad.offset) : Status(Failure(output.error()));
      bad.repaired = cut && (*output)->Sync();
      bad.repair_note = cut ? "cut off" : cut.error().message();
    }
    Bad(bad);
  }
  const uint64_t size = std::min(file->size(), slots * use.stride);
  uint64_t at = 0, begin = 0, end = 0;
  for (; NextData(file->fd(), at, &begin, &end) && begin < size; at = end)
    for (uint64_t slot = begin / use.stride; slot * use.stride < std::min(end, size); ++slot) {
      uint64_t gap = 0;
      for (size_t i = 0; i <= use.used.size(); ++i) {
        const uint64_t gap_end = i < use.used.size() ? use.used[i].first : use.stride;
        const uint64_t from = std::max(begin, slot * use.stride + gap);
        const uint64_t to = std::min({end, size, slot * use.stride + gap_end});
        if (from < to) DFIN_TRY_VOID(CheckZero(use, *file, from, to));
        if (i < use.used.size()) gap = use.used[i].second;
      }
    }
  return {};
}

Status SetVerifier::CheckZero(const FileUse& use, const DirectFile& file, uint64_t begin, uint64_t end) {
  DFIN_TRY(const AlignedBuffer memory,
           AlignedBuffer::Create(WidenedBytesAnywhere(std::min(kScanBytes, end - begin), file.alignment())));
  const BadRecordFn tell = [&](const BadRecord& bad) { Bad(bad); };
  for (uint64_t at = begin; at < end; at += kScanBytes) {
    if (cancel_.cancelled()) return Fail(ErrorCode::kCancelled, "stopped");
    const uint64_t bytes = std::min(kScanBytes, end - at);
    ReadPart part;
    part.request = {&file, at, bytes, memory.data()};
    BadRecord bad;
    bad.key = KeyOfSlot(use, at / use.stride);
    bad.replica = use.kind == CopyKind::kReplica;
    bad.file = use.path;
    const Status read = ReadNow(*io_, std::span(&part, 1));
    const std::byte* data = memory.data() + at % file.alignment();
    const auto is_set = [](std::byte b) { return b != std::byte{0}; };
    uint64_t first = 0, last = bytes;
    if (read) {
      first = static_cast<uint64_t>(std::find_if(data, data + bytes, is_set) - data);
      if (first == bytes) continue;
      while (!is_set(data[last - 1])) --last;
    }
    bad.offset = at + first;
    bad.bytes = last - first;
    bad.what = read ? "unused bytes are not zero" : "read failed: " + read.error().message();
    doctor_->ZeroRange(std::move(bad), tell);
  }
  return {};
}

ExpertKey SetVerifier::KeyOfSlot(const FileUse& use, uint64_t slot) const {
  for (size_t p = 0; p < index_.entries.size(); ++p) {
    const ExpertSetEntry& entry = index_.entries[p];
    const uint32_t its = use.kind == CopyKind::kPrimary ? entry.slot : entry.replica_slot;
    if (its == slot && its != kNoSlot && entry.table == use.table) return KeyAt(found_.manifest, p);
  }
  return {-1, -1};
}

Result<VerifyReport> SetVerifier::Run() {
  DFIN_TRY(const bool opened, Open());
  if (!opened) return std::move(report_);
  CheckManifests();
  DFIN_TRY_VOID(CheckRecords(CopyKind::kPrimary));
  DFIN_TRY_VOID(CheckRecords(CopyKind::kReplica));
  DFIN_TRY_VOID(CheckUnused());
  return std::move(report_);
}

}  // namespace deltafin
