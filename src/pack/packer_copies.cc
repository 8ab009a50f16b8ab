// Packer: second copies of records, into the room that the user gave for them.
#include <algorithm>
#include <numeric>

#include "checkpoint/integrity.h"
#include "pack/packer.h"
#include "pack/records_in_flight.h"
#include "pack/set_files.h"

namespace deltafin {

// The most used records first; without counts, the same number of every layer.
std::vector<uint32_t> Packer::ChooseCopies() const {
  const SetState& state = setup_.state;
  std::vector<uint32_t> order(state.entries.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto experts = static_cast<uint32_t>(state.manifest.experts);
  const bool known = usage_.size() == order.size();
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (known) return usage_[a] > usage_[b];
    return std::pair(a % experts, a / experts) < std::pair(b % experts, b / experts);
  });
  uint64_t room = options_.replica_bytes;
  std::vector<uint32_t> chosen;
  for (const uint32_t p : order)
    if (state.entries[p].replica_slot != kNoSlot) room -= std::min(room, state.table(p).record_bytes);
  for (const uint32_t p : order) {
    const bool wanted = state.has(p) && state.entries[p].replica_slot == kNoSlot;
    if (!wanted || state.table(p).record_bytes > room) continue;
    room -= state.table(p).record_bytes;
    chosen.push_back(p);
  }
  return chosen;
}

Status Packer::PackCopies(const std::vector<uint32_t>& positions) {
  if (positions.empty()) return {};
  SetState& state = setup_.state;
  DFIN_TRY(const SetFiles set, SetFiles::Open(state.manifest, setup_.folders));
  const size_t window = Window(largest_record_, 2);
  const auto parts = [&](size_t i, std::byte* buffer, std::span<ReadPart> out) -> size_t {
    const ExpertSetEntry& entry = state.entries[positions[i]];
    size_t count = 0;
    const SetFiles::Range whole{entry.table, CopyKind::kPrimary, entry.slot, 0, state.table(positions[i]).record_bytes};
    return set.AddParts(whole, buffer, 1, out, &count) ? count : 0;
  };
  for (const uint32_t p : positions) progress_.bytes_total += state.table(p).record_bytes;
  // Records are written from where they were read: a buffer is read into again when it is written.
  DFIN_TRY(const auto stream, RecordStream::Create(*io_, positions.size(), window, largest_record_, parts));
  RecordsInFlight writing(*writers_, *stream, window / 2);
  for (;;) {
    DFIN_TRY(const std::optional<RecordStream::Item> item, stream->Next(cancel_));
    if (!item) break;
    const uint32_t p = positions[item->index];
    const ExpertTable& table = state.table(p);
    const ExpertKey key = source_.Key(p);
    if (!item->status) return FailWith(Status(item->status), NameOf(key));
    if (Hash64(Bytes(item->buffer, static_cast<size_t>(table.record_bytes))) != state.entries[p].hash)
      return Fail(ErrorCode::kCorrupt, NameOf(key), ": what was read back for its second copy is not what was written ",
                  "(", set.Path(state.entries[p].table, CopyKind::kPrimary, 0), ", slot ", state.entries[p].slot,
                  "): nothing was copied from it: run `deltafin verify` on the set, and check the drive");
    DFIN_TRY_VOID(outputs_->Open(table.replica_pieces, 0));
    JournalEntry entry;
    entry.kind = JournalKind::kCopy;
    entry.position = p;
    entry.slot = table.replica_slots;
    outputs_->Write(*writers_, writing.Add(*item), table.replica_pieces, entry.slot, item->buffer);
    state.AddCopy(p);
    progress_.bytes_done += table.record_bytes;
    report_.bytes_written += table.record_bytes;
    DFIN_TRY_VOID(batches_->Add(std::move(entry), table.record_bytes));
    writing.MakeRoom();
    Tell("second copies");
  }
  return batches_->Flush();
}

}  // namespace deltafin
