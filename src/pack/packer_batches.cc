// The two helpers of Packer that the writers' threads see: buffers in turn, and batches on their way to the journal.
#include <utility>

#include "pack/packer.h"

namespace deltafin {

Result<std::unique_ptr<RecordBuffers>> RecordBuffers::Create(DriveWriters& writers, size_t count, uint64_t bytes) {
  std::unique_ptr<RecordBuffers> out(new RecordBuffers(writers));
  DFIN_TRY(out->memory_, AlignedBuffer::Create(count * bytes));
  for (size_t i = 0; i < count; ++i) out->buffers_.emplace_back().data = out->memory_.data() + i * bytes;
  return out;
}

RecordBuffers::~RecordBuffers() {
  for (const Buffer& buffer : buffers_) writers_.Wait(buffer.written);
}

RecordBuffers::Buffer& RecordBuffers::Next() {
  Buffer& buffer = buffers_[next_++ % buffers_.size()];
  writers_.Wait(buffer.written);
  return buffer;
}

JournaledBatches::~JournaledBatches() {
  for (const Batch& batch : batches_) writers_.Wait(batch.synced);
}

Status JournaledBatches::Add(JournalEntry entry, uint64_t bytes) {
  DFIN_TRY_VOID(writers_.status());
  entries_.push_back(std::move(entry));
  bytes_ += bytes;
  if (bytes_ >= batch_bytes_) Close();
  while (!batches_.empty() && (batches_.size() > 2 || writers_.Ended(batches_.front().synced)))
    DFIN_TRY_VOID(NoteFirst());
  return {};
}

void JournaledBatches::Close() {
  Batch& batch = batches_.emplace_back();
  batch.entries = std::exchange(entries_, {});
  bytes_ = 0;
  outputs_.Sync(writers_, batch.synced);
}

Status JournaledBatches::NoteFirst() {
  Batch& batch = batches_.front();
  writers_.Wait(batch.synced);
  // After an error later writes were skipped, so nothing more may be called done.
  DFIN_TRY_VOID(writers_.status());
  DFIN_TRY_VOID(journal_.Append(batch.entries));
  batches_.pop_front();
  return {};
}

Status JournaledBatches::Flush() {
  if (!entries_.empty()) Close();
  while (!batches_.empty()) DFIN_TRY_VOID(NoteFirst());
  return {};
}

}  // namespace deltafin
