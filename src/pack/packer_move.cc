// Packer with `move`: a shard gives up its experts when the drives have given all of them back unchanged.
#include "checkpoint/integrity.h"
#include "pack/packer.h"
#include "pack/set_files.h"
#include "pack/shard_rewrite.h"

namespace deltafin {

Status Packer::MoveShard(int32_t shard) {
  ExpertList experts;
  for (const SourceExpert& expert : source_.experts)
    if (expert.shard == shard) experts.push_back(&expert);
  const std::string name = source_.ShardName(shard);
  Tell("verifying " + name);
  DFIN_TRY_VOID(ReadBack(experts));
  if (journal_) {
    JournalEntry entry;
    entry.kind = JournalKind::kEmptied;
    entry.shard = name;
    DFIN_TRY_VOID(journal_->Append({entry}));
  }
  DFIN_TRY_VOID(EmptyShard(options_.hook, source_.shards[static_cast<size_t>(shard)], setup_.state.manifest.set_id,
                           setup_.folders));
  ++report_.shards_emptied;
  return {};
}

// Past every cache of this machine: the files are opened for direct reads.
Status Packer::ReadBack(const ExpertList& experts) {
  const SetState& state = setup_.state;
  DFIN_TRY(const SetFiles set, SetFiles::Open(state.manifest, setup_.folders));
  const auto parts = [&](size_t i, std::byte* buffer, std::span<ReadPart> out) -> size_t {
    const uint32_t p = experts[i]->position;
    size_t count = 0;
    const ExpertSetEntry& entry = state.entries[p];
    const SetFiles::Range whole{entry.table, CopyKind::kPrimary, entry.slot, 0, state.table(p).record_bytes};
    return set.AddParts(whole, buffer, 1, out, &count) ? count : 0;
  };
  const auto at_once = static_cast<size_t>(pool_->threads());
  DFIN_TRY(const auto stream,
           RecordStream::Create(*io_, experts.size(), Window(largest_record_, 2 * at_once), largest_record_, parts));
  for (;;) {
    std::vector<RecordStream::Item> items;
    while (items.size() < at_once) {
      DFIN_TRY(const std::optional<RecordStream::Item> item, stream->Next(cancel_));
      if (!item) break;
      if (!item->status) return FailWith(Status(item->status), NameOf(source_.Key(experts[item->index]->position)));
      items.push_back(*item);
    }
    if (items.empty()) return {};
    std::vector<uint64_t> hashes(items.size());
    pool_->ParallelFor(static_cast<int64_t>(items.size()), 1, [&](int64_t begin, int64_t end, int) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
        hashes[i] = Hash64(
            Bytes(items[i].buffer, static_cast<size_t>(state.table(experts[items[i].index]->position).record_bytes)));
    });
    for (size_t i = 0; i < items.size(); ++i) {
      const uint32_t p = experts[items[i].index]->position;
      if (hashes[i] != state.entries[p].hash)
        return Fail(ErrorCode::kCorrupt, NameOf(source_.Key(p)),
                    ": what the drives gave back is not what was written to them: expected checksum ",
                    state.entries[p].hash, ", got ", hashes[i],
                    ": the shard is kept: run `deltafin verify`, and check ", "the drives");
      stream->Recycle(items[i]);
    }
  }
}

}  // namespace deltafin
