#include "checkpoint/unit_layout.h"

#include <algorithm>
#include <cstring>

#include "base/units.h"

namespace deltafin {
namespace {

// Large enough to keep drives busy, small enough that progress moves and a cancelled load ends soon.
constexpr uint64_t kPieceBytes = 16 * kMiB;

// Appends one run of neighbouring bytes of a shard, landing at `at`.
void AppendReads(const DirectFile& file, UnitRead run, std::vector<UnitRead>& reads) {
  const uint64_t alignment = file.alignment();
  const uint64_t start = AlignDown(run.offset, alignment);
  const uint64_t end = run.offset + run.bytes;
  for (uint64_t offset = run.offset; offset < end;) {
    // Cuts are whole pieces away from the widened start, so pieces never overlap.
    const uint64_t cut = start + AlignDown(offset - start, kPieceBytes) + kPieceBytes;
    const uint64_t piece_end = std::min(cut, end);
    reads.push_back({run.shard, offset, piece_end - offset, run.at + (AlignDown(offset, alignment) - start)});
    offset = piece_end;
  }
}

}  // namespace

uint64_t UnitAlignment(const Checkpoint& checkpoint) {
  uint64_t alignment = 64;
  for (int i = 0; i < checkpoint.shard_count(); ++i) alignment = std::max(alignment, checkpoint.shard(i).alignment());
  return alignment;
}

UnitLayout LayOutUnit(const Checkpoint& checkpoint, std::span<const std::string> names, size_t prefix,
                      std::string_view without) {
  UnitLayout layout;
  const uint64_t unit_alignment = UnitAlignment(checkpoint);
  uint64_t free_at = 0;
  for (size_t first = 0; first < names.size();) {
    if (names[first] == without) {
      ++first;
      continue;
    }
    const TensorPlace& start = checkpoint.Dense(names[first]);
    const DirectFile& file = checkpoint.shard(start.shard);
    const uint64_t run_at = AlignUp(free_at, unit_alignment);
    const uint64_t lead = start.offset % file.alignment();
    uint64_t run_bytes = 0, settled_end = run_at;
    size_t next = first;
    for (; next < names.size(); ++next) {
      const TensorPlace& place = checkpoint.Dense(names[next]);
      if (place.shard != start.shard || place.offset != start.offset + run_bytes || names[next] == without) break;
      const uint64_t read_at = run_at + lead + run_bytes;
      const uint64_t at = AlignUp(std::max(read_at, settled_end), static_cast<uint64_t>(ByteSize(place.dtype)));
      const std::string_view name = std::string_view(names[next]).substr(prefix);
      layout.tensors.push_back({name, place.dtype, place.shape, read_at, at, place.bytes});
      settled_end = at + place.bytes;
      run_bytes += place.bytes;
    }
    AppendReads(file, {start.shard, start.offset, run_bytes, run_at}, layout.reads);
    layout.payload_bytes += run_bytes;
    free_at = std::max(settled_end, run_at + WidenedBytes(start.offset, run_bytes, file.alignment()));
    first = next;
  }
  layout.buffer_bytes = AlignUp(free_at, unit_alignment);
  return layout;
}

void StartReads(const Checkpoint& checkpoint, const UnitLayout& layout, std::byte* buffer, IoScheduler& io,
                IoPriority priority, IoTag tag, ReadGroup& group) {
  for (const UnitRead& read : layout.reads)
    group.Start(io, {&checkpoint.shard(read.shard), read.offset, read.bytes, buffer + read.at}, priority, tag,
                checkpoint.shard_drive(read.shard));
}

void Settle(const UnitLayout& layout, std::byte* buffer) {
  // From the last to the first: every move goes up, into room that has been left already.
  for (auto t = layout.tensors.rbegin(); t != layout.tensors.rend(); ++t)
    if (t->at != t->read_at) std::memmove(buffer + t->at, buffer + t->read_at, t->bytes);
}

}  // namespace deltafin
