// DenseEncoder: one unit of dense weights (a layer, the head) from the shards to the bytes of its file.
//
// Reads pieces of rows, one ahead, encodes them on the pool's threads, and compares what comes back with what came. The
// checkpoint, the scheduler and the pool outlive it. Thread rule: one thread. Errors: those of the reads, kCancelled,
// kOutOfMemory, kInternal when a matrix does not come back (a fault of the machine or ours).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/cancel.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/dense_manifest.h"
#include "checkpoint/read_group.h"
#include "io/io_scheduler.h"

namespace deltafin {

// A unit, and the bytes of its file: buffer[0, unit.bytes).
struct EncodedUnit {
  DenseUnit unit;
  AlignedBuffer buffer;
};

// Bytes that the unit's tensors have in the shards, and that its file will have about.
uint64_t DenseSourceBytes(const Checkpoint& checkpoint, int32_t unit);
uint64_t DenseUnitEstimate(const Checkpoint& checkpoint, int32_t unit);

class DenseEncoder {
 public:
  // Called with the bytes of each piece that is done.
  using Progress = std::function<void(uint64_t bytes)>;

  static Result<std::unique_ptr<DenseEncoder>> Create(const Checkpoint& checkpoint, IoScheduler& io, ThreadPool& pool,
                                                      uint64_t piece_bytes);

  Result<EncodedUnit> Encode(int32_t unit, const Progress& progress, CancelToken cancel);

 private:
  // A part of a tensor: whole rows, or any bytes of one that is copied.
  struct Piece {
    uint64_t offset = 0;  // in the tensor
    uint64_t bytes = 0;
  };

  DenseEncoder(const Checkpoint& checkpoint, IoScheduler& io, ThreadPool& pool, uint64_t piece_bytes)
      : checkpoint_(checkpoint), io_(io), pool_(pool), piece_bytes_(piece_bytes) {}

  // Calls `use` with every piece of a tensor in order, cut at multiples of `row_bytes`.
  using Use = std::function<Status(const Piece& piece, const std::byte* bytes)>;
  Status ForEachPiece(const TensorPlace& place, uint64_t row_bytes, const Use& use, CancelToken cancel);
  void StartRead(const TensorPlace& place, const Piece& piece, size_t slot);
  Result<const std::byte*> WaitForRead(const TensorPlace& place, const Piece& piece, size_t slot, CancelToken cancel);

  // Fills `tensor` and its bytes at `to`.
  Status EncodeTensor(DenseTensor& tensor, std::byte* to, const Progress& progress, CancelToken cancel);
  Status PackMatrix(DenseTensor& tensor, std::byte* to, const Progress& progress, CancelToken cancel);
  Status CopyTensor(DenseTensor& tensor, std::byte* to, const Progress& progress, CancelToken cancel);

  const Checkpoint& checkpoint_;
  IoScheduler& io_;
  ThreadPool& pool_;
  const uint64_t piece_bytes_;
  IoTag tag_ = 0;
  uint64_t slot_bytes_ = 0;
  std::shared_ptr<AlignedBuffer> memory_;  // two slots
  std::unique_ptr<ReadGroup> reads_[2];
};

}  // namespace deltafin
