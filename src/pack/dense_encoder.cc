#include "pack/dense_encoder.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "checkpoint/dense_set.h"
#include "checkpoint/integrity.h"
#include "io/read_request.h"
#include "tensor/bf12.h"

namespace deltafin {
namespace {

// What a tensor takes at most.
uint64_t RoomFor(const std::string& name, const TensorPlace& place) {
  if (!MayBeBf12(name, place.dtype, place.shape)) return AlignUp(place.bytes, kBf12Alignment);
  return AlignUp(std::max(place.bytes, Bf12MostBytes(place.shape[0], place.shape[1])), kBf12Alignment);
}

}  // namespace

uint64_t DenseSourceBytes(const Checkpoint& checkpoint, int32_t unit) {
  uint64_t bytes = 0;
  for (const std::string& name : DenseUnitNames(checkpoint, unit)) bytes += checkpoint.Dense(name).bytes;
  return bytes;
}

uint64_t DenseUnitEstimate(const Checkpoint& checkpoint, int32_t unit) {
  uint64_t bytes = 0;
  for (const std::string& name : DenseUnitNames(checkpoint, unit)) {
    const TensorPlace& place = checkpoint.Dense(name);
    const bool packed = MayBeBf12(name, place.dtype, place.shape);
    bytes += packed ? Bf12View::RowsAt(place.shape[0]) +
                          static_cast<uint64_t>(place.shape[0] * Bf12PackedRowBytes(place.shape[1]))
                    : place.bytes;
  }
  // Some escapes, some rows that stay whole, and padding.
  return AlignUp(bytes + bytes / 256, kDensePage);
}

Result<std::unique_ptr<DenseEncoder>> DenseEncoder::Create(const Checkpoint& checkpoint, IoScheduler& io,
                                                           ThreadPool& pool, uint64_t piece_bytes) {
  // A piece has at least one row.
  uint64_t alignment = 1, longest_row = 0;
  const auto layers = static_cast<int32_t>(checkpoint.spec().layers.size());
  for (int i = 0; i < checkpoint.shard_count(); ++i) alignment = std::max(alignment, checkpoint.shard(i).alignment());
  for (int32_t unit = 0; unit <= layers; ++unit)
    for (const std::string& name : DenseUnitNames(checkpoint, unit)) {
      const TensorPlace& place = checkpoint.Dense(name);
      longest_row = std::max(longest_row, place.bytes / static_cast<uint64_t>(place.shape[0]));
    }
  std::unique_ptr<DenseEncoder> encoder(new DenseEncoder(checkpoint, io, pool, std::max(piece_bytes, longest_row)));
  encoder->slot_bytes_ = AlignUp(WidenedBytesAnywhere(encoder->piece_bytes_, alignment), alignment);
  DFIN_TRY(AlignedBuffer memory, AlignedBuffer::Create(2 * encoder->slot_bytes_));
  encoder->memory_ = std::make_shared<AlignedBuffer>(std::move(memory));
  for (auto& reads : encoder->reads_) reads = std::make_unique<ReadGroup>(encoder->memory_);
  encoder->tag_ = io.NewTag();
  return encoder;
}

void DenseEncoder::StartRead(const TensorPlace& place, const Piece& piece, size_t slot) {
  reads_[slot]->Start(
      io_,
      {&checkpoint_.shard(place.shard), place.offset + piece.offset, piece.bytes, memory_->data() + slot * slot_bytes_},
      IoPriority::kBackground, tag_, checkpoint_.shard_drive(place.shard));
}

Result<const std::byte*> DenseEncoder::WaitForRead(const TensorPlace& place, const Piece& piece, size_t slot,
                                                   CancelToken cancel) {
  if (cancel.cancelled() || !reads_[slot]->WaitUnless(cancel)) {
    io_.Cancel(tag_);
    return Fail(ErrorCode::kCancelled, "packing dense weights: stopped");
  }
  DFIN_TRY_VOID(reads_[slot]->Wait());
  std::byte* at = memory_->data() + slot * slot_bytes_;
  const uint64_t lead = (place.offset + piece.offset) % checkpoint_.shard(place.shard).alignment();
  // Files may put a tensor at any byte.
  if (lead % 4 != 0) std::memmove(at, at + lead, piece.bytes);
  return at + (lead % 4 != 0 ? 0 : lead);
}

Status DenseEncoder::ForEachPiece(const TensorPlace& place, uint64_t row_bytes, const Use& use, CancelToken cancel) {
  const uint64_t step = std::max(piece_bytes_ / row_bytes, uint64_t{1}) * row_bytes;
  const auto piece_at = [&](uint64_t offset) { return Piece{offset, std::min(step, place.bytes - offset)}; };
  StartRead(place, piece_at(0), 0);
  size_t slot = 0;
  for (uint64_t offset = 0; offset < place.bytes; offset += step, slot ^= 1) {
    if (offset + step < place.bytes) StartRead(place, piece_at(offset + step), slot ^ 1);
    const Piece piece = piece_at(offset);
    DFIN_TRY(const std::byte* bytes, WaitForRead(place, piece, slot, cancel));
    DFIN_TRY_VOID(use(piece, bytes));
  }
  return {};
}

Status DenseEncoder::CopyTensor(DenseTensor& tensor, std::byte* to, const Progress& progress, CancelToken cancel) {
  const TensorPlace& place = checkpoint_.Dense(tensor.name);
  tensor.dtype = place.dtype;
  tensor.bytes = place.bytes;
  tensor.whole_rows = 0;
  tensor.escapes = 0;
  return ForEachPiece(
      place, 4,
      [&](const Piece& piece, const std::byte* bytes) -> Status {
        std::memcpy(to + piece.offset, bytes, piece.bytes);
        if (progress) progress(piece.bytes);
        return {};
      },
      cancel);
}

Status DenseEncoder::PackMatrix(DenseTensor& tensor, std::byte* to, const Progress& progress, CancelToken cancel) {
  const int64_t columns = tensor.shape[1];
  const auto row_bytes = static_cast<uint64_t>(2 * columns);
  Bf12Writer writer(tensor.shape[0], columns, to);
  const auto pack = [&](const Piece& piece, const std::byte* bytes) -> Status {
    const auto* values = reinterpret_cast<const uint16_t*>(bytes);
    const auto first = static_cast<int64_t>(piece.offset / row_bytes),
               count = static_cast<int64_t>(piece.bytes / row_bytes);
    writer.Append(values, count, pool_);
    std::atomic<int64_t> wrong{-1};
    pool_.ParallelFor(count, 4, [&](int64_t begin, int64_t end, int) {
      std::vector<uint16_t> decoded(static_cast<size_t>(columns));
      for (int64_t i = begin; i < end; ++i) {
        DecodeBf12Row(writer.Row(first + i), columns, decoded.data());
        if (std::memcmp(decoded.data(), values + i * columns, row_bytes) != 0) wrong = first + i;
      }
    });
    if (wrong >= 0)
      return Fail(ErrorCode::kInternal, tensor.name, ", row ", wrong.load(),
                  ": expected the row to come back from its packed form, got other values: nothing of this layer was "
                  "written; the memory of this machine may be faulty");
    if (progress) progress(piece.bytes);
    return {};
  };
  DFIN_TRY_VOID(ForEachPiece(checkpoint_.Dense(tensor.name), row_bytes, pack, cancel));
  tensor.dtype = DType::kBf12;
  tensor.bytes = writer.Finish();
  tensor.whole_rows = writer.whole_rows();
  tensor.escapes = writer.escapes();
  return CheckBf12(Bytes(to, tensor.bytes), tensor.shape[0], columns);
}

Status DenseEncoder::EncodeTensor(DenseTensor& tensor, std::byte* to, const Progress& progress, CancelToken cancel) {
  const TensorPlace& place = checkpoint_.Dense(tensor.name);
  if (!MayBeBf12(tensor.name, place.dtype, place.shape)) return CopyTensor(tensor, to, progress, cancel);
  DFIN_TRY_VOID(PackMatrix(tensor, to, progress, cancel));
  if (tensor.bytes < place.bytes) return {};
  // Values that are no weights' values: it did not shrink.
  const uint64_t used = tensor.bytes;
  DFIN_TRY_VOID(CopyTensor(tensor, to, {}, cancel));
  std::memset(to + tensor.bytes, 0, used - tensor.bytes);
  return {};
}

Result<EncodedUnit> DenseEncoder::Encode(int32_t unit, const Progress& progress, CancelToken cancel) {
  const std::vector<std::string> names = DenseUnitNames(checkpoint_, unit);
  uint64_t room = 0;
  for (const std::string& name : names) room += RoomFor(name, checkpoint_.Dense(name));
  EncodedUnit encoded;
  encoded.unit.unit = unit;
  DFIN_TRY(encoded.buffer, AlignedBuffer::Create(AlignUp(room, kDensePage)));
  uint64_t at = 0;
  for (const std::string& name : names) {
    DenseTensor tensor;
    tensor.name = name;
    tensor.shape = checkpoint_.Dense(name).shape;
    tensor.offset = at;
    DFIN_TRY_VOID(EncodeTensor(tensor, encoded.buffer.data() + at, progress, cancel));
    at = AlignUp(at + tensor.bytes, kBf12Alignment);
    encoded.unit.tensors.push_back(std::move(tensor));
  }
  encoded.unit.bytes = AlignUp(at, kDensePage);
  encoded.unit.hash = Hash64(Bytes(encoded.buffer.data(), encoded.unit.bytes));
  return encoded;
}

}  // namespace deltafin
