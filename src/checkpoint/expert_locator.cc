#include "checkpoint/expert_locator.h"

#include <algorithm>

#include "checkpoint/integrity.h"
#include "checkpoint/stream_places.h"

namespace deltafin {
namespace {

class ShardLocator : public ExpertLocator {
 public:
  explicit ShardLocator(const Checkpoint& checkpoint) : checkpoint_(checkpoint), geometry_(checkpoint.spec()) {
    for (int i = 0; i < checkpoint.shard_count(); ++i)
      alignment_ = std::max(alignment_, checkpoint.shard(i).alignment());
  }

  uint64_t record_bytes() const override { return static_cast<uint64_t>(geometry_.record_bytes()); }
  uint64_t slot_bytes() const override { return WidenedBytesAnywhere(record_bytes(), alignment_); }
  uint64_t slot_alignment() const override { return alignment_; }

  bool HasCopy(ExpertKey) const override { return false; }
  size_t Parts(ExpertKey key, std::byte* slot, std::span<ReadPart> out) const override {
    const ExpertPlace& place = checkpoint_.Expert(key);
    out[0] = {{&checkpoint_.shard(place.shard), place.offset, record_bytes(), slot},
              checkpoint_.shard_drive(place.shard),
              {}};
    return 1;
  }
  size_t PartsAvoiding(ExpertKey, std::byte*, std::span<const RecordRange>, std::span<ReadPart>) const override {
    return 0;
  }
  size_t PartsOfRanges(ExpertKey, std::byte*, std::span<const RecordRange>, bool, std::span<ReadPart>) const override {
    return 0;
  }

  bool has_checksums() const override { return false; }
  bool ChecksumIsRight(ExpertKey, const std::byte*) const override { return true; }
  std::vector<RecordRange> WrongRanges(ExpertKey, const std::byte*) const override { return {{0, record_bytes()}}; }

  ExpertWeights Open(ExpertKey key, std::byte* slot) const override {
    const ExpertPlace& place = checkpoint_.Expert(key);
    return ViewExpert(geometry_, place.layout, slot + place.offset % checkpoint_.shard(place.shard).alignment());
  }
  uint64_t ScalesAt(ExpertKey key, ExpertMatrix matrix) const override {
    return checkpoint_.Expert(key).layout.scale_offset[static_cast<size_t>(matrix)];
  }
  std::string Where(ExpertKey key, RecordRange range) const override {
    const ExpertPlace& place = checkpoint_.Expert(key);
    const std::string& path = checkpoint_.shard(place.shard).path();
    const uint64_t begin = place.offset + range.begin, last = place.offset + range.end - 1;
    return begin == last ? Cat(path, ", byte ", begin) : Cat(path, ", bytes ", begin, " to ", last);
  }

 protected:
  // Of the record in `slot`, as read.
  uint64_t HashOf(ExpertKey key, const std::byte* slot) const {
    const ExpertPlace& place = checkpoint_.Expert(key);
    const std::byte* record = slot + place.offset % checkpoint_.shard(place.shard).alignment();
    return Hash64(Bytes(record, static_cast<size_t>(record_bytes())));
  }

 private:
  const Checkpoint& checkpoint_;
  const ExpertGeometry geometry_;
  uint64_t alignment_ = 1;
};

class StreamLocator final : public ShardLocator {
 public:
  StreamLocator(const Checkpoint& checkpoint, const StreamFolder& folder)
      : ShardLocator(checkpoint), folder_(folder), places_(checkpoint, folder) {}

  bool has_checksums() const override { return true; }
  bool ChecksumIsRight(ExpertKey key, const std::byte* slot) const override {
    const std::optional<FileRange> range = places_.Of(key);
    const std::optional<uint64_t> expected = range ? folder_.HashOf(*range) : std::nullopt;
    return !expected || *expected == HashOf(key, slot);
  }

 private:
  const StreamFolder& folder_;
  const StreamPlaces places_;
};

class SetLocator final : public ExpertLocator {
 public:
  SetLocator(const ExpertSet& set, int32_t first_drive)
      : set_(set), geometry_(set.manifest().hidden, set.manifest().intermediate), first_drive_(first_drive) {
    const ExpertTable* common = &set.manifest().tables[0];
    slot_bytes_ = AlignUp(PackedRecordBytes(geometry_, 3), set.manifest().page);
    for (const ExpertTable& table : set.manifest().tables) {
      if (table.slots > common->slots) common = &table;
      slot_bytes_ = std::max(slot_bytes_, table.record_bytes);
    }
    record_bytes_ = PackedRecordBytes(geometry_, common->whole);
  }

  uint64_t record_bytes() const override { return record_bytes_; }
  uint64_t slot_bytes() const override { return slot_bytes_; }
  uint64_t slot_alignment() const override { return set_.manifest().page; }

  bool HasCopy(ExpertKey key) const override { return set_.HasCopy(key); }
  size_t Parts(ExpertKey key, std::byte* slot, std::span<ReadPart> out) const override {
    return set_.Parts(key, slot, first_drive_, out);
  }
  size_t PartsAvoiding(ExpertKey key, std::byte* slot, std::span<const RecordRange> bad,
                       std::span<ReadPart> out) const override {
    return set_.PartsAvoiding(key, slot, first_drive_, bad, out);
  }
  size_t PartsOfRanges(ExpertKey key, std::byte* slot, std::span<const RecordRange> ranges, bool copies,
                       std::span<ReadPart> out) const override {
    return set_.PartsOfRanges(key, slot, first_drive_, ranges, copies, out);
  }

  bool has_checksums() const override { return true; }
  bool ChecksumIsRight(ExpertKey key, const std::byte* slot) const override {
    return Hash64(Record(key, slot)) == set_.Entry(key).hash;
  }
  std::vector<RecordRange> WrongRanges(ExpertKey key, const std::byte* slot) const override {
    const Bytes record = Record(key, slot);
    const uint64_t chunk = set_.manifest().checksum_chunk;
    const std::span<const uint64_t> expected = set_.ChunkHashes(key);
    const std::vector<uint64_t> got = HashChunks(record, chunk);
    std::vector<RecordRange> wrong;
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] == expected[i]) continue;
      const RecordRange range{i * chunk, std::min<uint64_t>((i + 1) * chunk, record.size())};
      if (!wrong.empty() && wrong.back().end == range.begin)
        wrong.back().end = range.end;
      else
        wrong.push_back(range);
    }
    if (wrong.empty()) wrong.push_back({0, record.size()});
    return wrong;
  }

  ExpertWeights Open(ExpertKey key, std::byte* slot) const override {
    return UnpackRecord(geometry_, set_.Entry(key).bases, slot);
  }
  uint64_t ScalesAt(ExpertKey key, ExpertMatrix matrix) const override {
    return PackedScaleOffset(geometry_, set_.Entry(key).bases, matrix);
  }
  std::string Where(ExpertKey key, RecordRange range) const override { return set_.Where(key, range); }

 private:
  Bytes Record(ExpertKey key, const std::byte* slot) const {
    return {slot, static_cast<size_t>(set_.Table(set_.Entry(key)).record_bytes)};
  }

  const ExpertSet& set_;
  const ExpertGeometry geometry_;
  const int32_t first_drive_;
  uint64_t record_bytes_ = 0;
  uint64_t slot_bytes_ = 0;
};

}  // namespace

std::unique_ptr<const ExpertLocator> LocateInShards(const Checkpoint& checkpoint) {
  return std::make_unique<ShardLocator>(checkpoint);
}

std::unique_ptr<const ExpertLocator> LocateInStream(const Checkpoint& checkpoint, const StreamFolder& folder) {
  return std::make_unique<StreamLocator>(checkpoint, folder);
}

std::unique_ptr<const ExpertLocator> LocateInSet(const ExpertSet& set, int32_t first_drive) {
  return std::make_unique<SetLocator>(set, first_drive);
}

}  // namespace deltafin
