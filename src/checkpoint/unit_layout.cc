#include "checkpoint/unit_layout.h"

#include <algorithm>
#include <cstring>

#include "base/units.h"
#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"
#include "spec/tensor_table.h"
#include "tensor/bf12.h"

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
    reads.push_back({run.file, offset, piece_end - offset, run.at + (AlignDown(offset, alignment) - start)});
    offset = piece_end;
  }
}

UnitLayout LayOutPacked(const DenseSource& source, int32_t unit, size_t prefix) {
  const DenseUnit& from = source.packed->manifest().units[static_cast<size_t>(unit)];
  UnitLayout layout;
  layout.packed = &from;
  for (const DenseTensor& t : from.tensors)
    layout.tensors.push_back({std::string_view(t.name).substr(prefix), t.dtype, t.shape, t.offset, t.offset, t.bytes});
  AppendReads(source.packed->file(unit), {unit, 0, from.bytes, 0}, layout.reads);
  layout.payload_bytes = from.bytes;
  layout.buffer_bytes = AlignUp(from.bytes, source.alignment());
  return layout;
}

}  // namespace

UnitLayout LayOutDenseUnit(const DenseSource& source, int32_t unit) {
  const bool is_head = unit == source.layers();
  const size_t prefix = is_head ? 0 : LayerTensorName(unit, "").size();
  if (source.packed != nullptr) return LayOutPacked(source, unit, prefix);
  return LayOutUnit(source, source.checkpoint->DenseNames(is_head ? -1 : unit), prefix, is_head ? kEmbedTokens : "");
}

UnitLayout LayOutEmbedding(const Checkpoint& checkpoint) {
  const std::vector<std::string>& globals = checkpoint.DenseNames(-1);
  const auto it = std::find(globals.begin(), globals.end(), kEmbedTokens);
  DFIN_CHECK(it != globals.end(), "every spec has an embedding table");
  return LayOutUnit(checkpoint, std::span(&*it, 1), 0);
}

UnitLayout LayOutUnit(const DenseSource& source, std::span<const std::string> names, size_t prefix,
                      std::string_view without) {
  UnitLayout layout;
  const Checkpoint& checkpoint = *source.checkpoint;
  const uint64_t unit_alignment = source.alignment();
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

void StartReads(const DenseSource& source, const UnitLayout& layout, std::byte* buffer, IoScheduler& io,
                IoPriority priority, IoTag tag, ReadGroup& group) {
  const bool of_set = layout.packed != nullptr;
  for (const UnitRead& read : layout.reads)
    group.Start(io, {&source.file(of_set, read.file), read.offset, read.bytes, buffer + read.at}, priority, tag,
                source.drive(of_set, read.file));
}

void Settle(const UnitLayout& layout, std::byte* buffer) {
  // From the last to the first: every move goes up, into room that has been left already.
  for (auto t = layout.tensors.rbegin(); t != layout.tensors.rend(); ++t)
    if (t->at != t->read_at) std::memmove(buffer + t->at, buffer + t->read_at, t->bytes);
}

Status CheckUnit(const DenseSource& source, const UnitLayout& layout, const std::byte* buffer, bool whole) {
  if (layout.packed == nullptr) return {};
  const DenseUnit& unit = *layout.packed;
  const std::string& path = source.packed->file(unit.unit).path();
  constexpr std::string_view kAdvice =
      ": damaged: run `deltafin pack --dense` again, which writes only what is damaged";
  if (whole) {
    const uint64_t hash = Hash64(Bytes(buffer, unit.bytes));
    if (hash != unit.hash)
      return Fail(ErrorCode::kCorrupt, path, ": expected checksum ", ToHex(unit.hash), ", got ", ToHex(hash), kAdvice);
  }
  for (const UnitTensor& tensor : layout.tensors) {
    if (tensor.dtype != DType::kBf12) continue;
    Status sound = CheckBf12(Bytes(buffer + tensor.at, tensor.bytes), tensor.shape[0], tensor.shape[1]);
    if (!sound) return FailWith(std::move(sound), Cat(path, kAdvice, ": ", tensor.name));
  }
  return {};
}

}  // namespace deltafin
