// EmbeddingReader: rows of the embedding table for the tokens of a step, from memory or read one by one from the shard.
//
// Memory: the rows of the largest step so far. Thread rule: engine thread only. The checkpoint and the scheduler
// outlive it. Errors: kInvalidArgument for an id outside the vocabulary, kCancelled, and those of the reads. Rows whose
// reads are still on their way after a cancellation are not touched until those end.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/aligned_buffer.h"
#include "base/cancel.h"
#include "base/ids.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/read_group.h"
#include "io/io_scheduler.h"
#include "tensor/tensor.h"

namespace deltafin {

class EmbeddingReader {
 public:
  EmbeddingReader(const Checkpoint& checkpoint, IoScheduler& io);

  // From now on rows come from here: the whole table [V, H] BF16.
  void SetTable(const std::byte* table) { table_ = table; }

  // [ids.size(), H] BF16, valid until the next call.
  // A cancellation is noticed within 50 ms, also while a read hangs.
  Result<TensorView> Get(std::span<const TokenId> ids, CancelToken cancel);

  uint64_t read_bytes() const { return read_bytes_; }  // payload

 private:
  Status Reserve(size_t rows);
  Status ReadRows(std::span<const TokenId> ids, CancelToken cancel);
  static Failure Cancelled();

  const TensorPlace& place_;
  const DirectFile& file_;
  const int32_t drive_;
  IoScheduler& io_;
  const IoTag tag_;
  uint64_t row_bytes_ = 0;
  uint64_t slot_bytes_ = 0;  // one row as read, widened
  const std::byte* table_ = nullptr;
  AlignedBuffer rows_;
  std::shared_ptr<AlignedBuffer> slots_;
  size_t capacity_ = 0;  // rows
  ReadGroup reads_;
  uint64_t read_bytes_ = 0;
};

}  // namespace deltafin
