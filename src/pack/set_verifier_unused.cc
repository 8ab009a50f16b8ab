// SetVerifier: bytes of the files that no record uses: they are zero.
#include <algorithm>
#include <map>
#include <utility>

#include "pack/output_file.h"
#include "pack/set_verifier.h"

namespace deltafin {
namespace {

constexpr uint64_t kScanBytes = uint64_t{4} << 20;

}  // namespace

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
  const auto skip = [&](std::string_view why) {
    report_.notes.push_back(Cat("bytes that the set does not use were not checked: ", why));
    return Status();
  };
  if (HasJournal()) return skip("an unfinished pack or rebalance writes there: finish it by giving its command again");
  if (some_missing_) return skip("the drive that is missing may hold the journal of an unfinished pack");
  if (experts_lost_) return skip("they may be the experts that the set should have");
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

}  // namespace deltafin
