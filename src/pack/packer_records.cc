// Packer: from experts in shards to records on drives.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "checkpoint/integrity.h"
#include "pack/packer.h"
#include "pack/set_files.h"

namespace deltafin {
namespace {

constexpr uint64_t kWindowBytes = uint64_t{192} << 20;
constexpr size_t kMostInWindow = 256;

}  // namespace

size_t Packer::Window(uint64_t record_bytes, size_t least) {
  return std::clamp<size_t>(static_cast<size_t>(kWindowBytes / record_bytes), least, std::max(least, kMostInWindow));
}

Status Packer::PackAll() {
  const std::vector<SourceExpert>& all = source_.experts;
  if (!options_.move) {
    DFIN_TRY_VOID(PackShards(0, all.size()));
    return batches_ == nullptr ? Status() : batches_->Flush();
  }
  for (size_t begin = 0; begin < all.size();) {
    size_t end = begin;
    while (end < all.size() && all[end].shard == all[begin].shard) ++end;
    DFIN_TRY_VOID(PackShards(begin, end));
    if (batches_ != nullptr) DFIN_TRY_VOID(batches_->Flush());
    DFIN_TRY_VOID(MoveShard(all[begin].shard));
    begin = end;
  }
  return {};
}

Status Packer::PackShards(size_t begin, size_t end) {
  ExpertList list, known_list;
  for (size_t i = begin; i < end; ++i) {
    const SourceExpert& expert = source_.experts[i];
    const bool known = setup_.state.has(expert.position);
    // What an earlier call packed is compared before the shard gives it up: the shard may have been replaced since.
    if (known && !options_.move) continue;
    (known ? known_list : list).push_back(&expert);
  }
  if (!known_list.empty()) {
    DFIN_TRY(const ShardFiles files, OpenShards(source_, known_list));
    DFIN_TRY_VOID(CompareList(known_list, files));
  }
  if (list.empty()) return {};
  DFIN_TRY(const ShardFiles files, OpenShards(source_, list));
  return PackList(list, files);
}

Status Packer::CompareList(const ExpertList& list, const ShardFiles& files) {
  DFIN_TRY(const auto stream, ReadExperts(*io_, source_, list, files, Window(largest_record_, 2)));
  DFIN_TRY(AlignedBuffer packed_bytes,
           AlignedBuffer::Create(AlignUp(PackedRecordBytes(source_.geometry(), 3), setup_.state.manifest.page)));
  for (;;) {
    DFIN_TRY(const std::optional<RecordStream::Item> item, stream->Next(cancel_));
    if (!item) return {};
    const SourceExpert& expert = *list[item->index];
    const std::string name = NameOf(source_.Key(expert.position));
    if (!item->status) return FailWith(Status(item->status), name);
    const Packed packed = PackOne(expert, files[static_cast<size_t>(expert.shard)], item->buffer, packed_bytes.data());
    DFIN_TRY_VOID(Status(packed.status));
    if (packed.hash != setup_.state.entries[expert.position].hash)
      return Fail(
          ErrorCode::kCorrupt, name, ": ", source_.ShardName(expert.shard),
          " holds other bytes than the expert set: "
          "expected checksum ",
          setup_.state.entries[expert.position].hash, ", got ", packed.hash,
          ": nothing was removed: find out with `deltafin verify` which of them is right (verify --repair takes the "
          "shard's bytes where the set is damaged)");
    stream->Recycle(*item);
  }
}

Status Packer::PackList(const ExpertList& list, const ShardFiles& files) {
  const auto at_once = static_cast<size_t>(pool_->threads());
  const size_t window = Window(largest_record_, 2 * at_once);
  DFIN_TRY(const auto buffers, RecordBuffers::Create(*writers_, window, largest_record_));
  DFIN_TRY(const auto stream, ReadExperts(*io_, source_, list, files, window));
  for (;;) {
    std::vector<RecordStream::Item> items;
    std::vector<RecordBuffers::Buffer*> out;
    while (items.size() < at_once) {
      DFIN_TRY(const std::optional<RecordStream::Item> item, stream->Next(cancel_));
      if (!item) break;
      if (!item->status) return FailWith(Status(item->status), NameOf(source_.Key(list[item->index]->position)));
      items.push_back(*item);
      out.push_back(&buffers->Next());
    }
    if (items.empty()) return {};
    std::vector<Packed> packed(items.size());
    pool_->ParallelFor(static_cast<int64_t>(items.size()), 1, [&](int64_t begin, int64_t end, int) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        const SourceExpert& expert = *list[items[i].index];
        packed[i] = PackOne(expert, files[static_cast<size_t>(expert.shard)], items[i].buffer, out[i]->data);
      }
    });
    for (size_t i = 0; i < items.size(); ++i) {
      DFIN_TRY_VOID(Take(*list[items[i].index], std::move(packed[i]), *out[i]));
      stream->Recycle(items[i]);
    }
    Tell("packing");
  }
}

Packer::Packed Packer::PackOne(const SourceExpert& expert, const DirectFile& file, const std::byte* in,
                               std::byte* out) const {
  Packed packed;
  const ExpertGeometry geometry = source_.geometry();
  const ExpertWeights weights = ViewSource(source_, expert, file.alignment(), in);
  packed.status = CheckScales(source_, expert, weights);
  if (!packed.status) return packed;
  const std::array<const uint8_t*, 3> scales = {weights.w1.scale, weights.w2.scale, weights.w3.scale};
  for (size_t m = 0; setup_.state.manifest.compact && m < scales.size(); ++m) {
    const auto count = static_cast<size_t>(geometry.scale_bytes(static_cast<ExpertMatrix>(m)));
    packed.bases[m] = CompactBase(std::as_bytes(std::span(scales[m], count))).value_or(kWholeScales);
  }
  const int whole = WholeMatrices(packed.bases);
  const uint64_t used = PackedRecordBytes(geometry, whole);
  packed.bytes = AlignUp(used, setup_.state.manifest.page);
  PackRecord(geometry, weights, packed.bases, out);
  std::memset(out + used, 0, static_cast<size_t>(packed.bytes - used));
  const Bytes record(out, static_cast<size_t>(packed.bytes));
  packed.hash = Hash64(record);
  packed.chunk_hashes = HashChunks(record, setup_.state.manifest.checksum_chunk);
  return packed;
}

Status Packer::Take(const SourceExpert& expert, Packed packed, RecordBuffers::Buffer& buffer) {
  DFIN_TRY_VOID(packed.status);
  SetState& state = setup_.state;
  const int whole = WholeMatrices(packed.bases);
  const ExpertTable& table = state.manifest.tables[state.TableOf(whole)];
  // How many records there will be is known for the first table only: trained weights are all in it.
  const bool first = &table == &state.manifest.tables.front();
  DFIN_TRY_VOID(outputs_->Open(table.pieces, first ? table.slots + source_.experts.size() : 0));
  JournalEntry entry;
  entry.position = expert.position;
  entry.slot = table.slots;
  entry.whole = static_cast<uint32_t>(whole);
  entry.bases = packed.bases;
  entry.hash = packed.hash;
  entry.chunk_hashes = packed.chunk_hashes;
  outputs_->Write(*writers_, buffer.written, table.pieces, entry.slot, buffer.data);
  state.AddRecord(expert.position, packed.bases, packed.hash, std::move(packed.chunk_hashes));
  ++progress_.records_done;
  progress_.bytes_done += packed.bytes;
  report_.bytes_written += packed.bytes;
  return batches_->Add(std::move(entry), packed.bytes);
}

}  // namespace deltafin
