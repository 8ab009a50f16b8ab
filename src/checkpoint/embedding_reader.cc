#include "checkpoint/embedding_reader.h"

#include <algorithm>
#include <cstring>

#include "spec/tensor_table.h"

namespace deltafin {

EmbeddingReader::EmbeddingReader(const Checkpoint& checkpoint, IoScheduler& io)
    : place_(checkpoint.Dense(kEmbedTokens)),
      file_(checkpoint.shard(place_.shard)),
      drive_(checkpoint.shard_drive(place_.shard)),
      io_(io),
      tag_(io.NewTag()) {
  row_bytes_ = static_cast<uint64_t>(place_.shape[1] * ByteSize(place_.dtype));
  slot_bytes_ = WidenedBytesAnywhere(row_bytes_, file_.alignment());
}

Status EmbeddingReader::Reserve(size_t rows) {
  if (rows <= capacity_) return {};
  DFIN_TRY(rows_, AlignedBuffer::Create(rows * row_bytes_, false));
  if (table_ == nullptr) {
    DFIN_TRY(AlignedBuffer slots, AlignedBuffer::Create(rows * slot_bytes_, false));
    slots_ = std::make_shared<AlignedBuffer>(std::move(slots));
    reads_.SetMemory(slots_);
  }
  capacity_ = rows;
  return {};
}

Result<TensorView> EmbeddingReader::Get(std::span<const TokenId> ids, CancelToken cancel) {
  const int64_t vocabulary = place_.shape[0];
  for (const TokenId id : ids)
    if (id < 0 || id >= vocabulary)
      return Fail(ErrorCode::kInvalidArgument, "embedding: expected a token id from 0 to ", vocabulary - 1, ", got ",
                  id);
  // Reads of a call that was cancelled; what they came to is of no interest.
  if (!reads_.WaitUnless(cancel)) return Cancelled();
  static_cast<void>(reads_.Wait());
  if (!reads_.idle())
    return Fail(ErrorCode::kDeadline, "reading rows of the embedding table: an earlier read of ", file_.path(),
                " hangs and still holds the memory for them");
  DFIN_TRY_VOID(Reserve(std::max<size_t>(ids.size(), 1)));
  if (table_ == nullptr) {
    DFIN_TRY_VOID(ReadRows(ids, cancel));
  } else {
    for (size_t i = 0; i < ids.size(); ++i)
      std::memcpy(rows_.data() + i * row_bytes_, table_ + static_cast<uint64_t>(ids[i]) * row_bytes_, row_bytes_);
  }
  return TensorView{rows_.data(), place_.dtype, Shape{static_cast<int64_t>(ids.size()), place_.shape[1]}};
}

Failure EmbeddingReader::Cancelled() {
  return Fail(ErrorCode::kCancelled, "reading rows of the embedding table: stopped");
}

Status EmbeddingReader::ReadRows(std::span<const TokenId> ids, CancelToken cancel) {
  const auto offset = [&](size_t i) { return place_.offset + static_cast<uint64_t>(ids[i]) * row_bytes_; };
  for (size_t i = 0; i < ids.size(); ++i)
    reads_.Start(io_, {&file_, offset(i), row_bytes_, slots_->data() + i * slot_bytes_}, IoPriority::kDemand, tag_,
                 drive_);
  if (!reads_.WaitUnless(cancel)) {
    io_.Cancel(tag_);
    return Cancelled();
  }
  Status status = reads_.Wait();
  if (!status) return FailWith(std::move(status), "reading rows of the embedding table");
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::byte* row = slots_->data() + i * slot_bytes_ + offset(i) % file_.alignment();
    std::memcpy(rows_.data() + i * row_bytes_, row, row_bytes_);
  }
  read_bytes_ += ids.size() * row_bytes_;
  return {};
}

}  // namespace deltafin
