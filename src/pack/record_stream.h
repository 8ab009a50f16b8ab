// RecordStream: reads a list of records in order, as many at once as it has buffers.
//
// Next() gives them in the order of the list, each with the status of its read; Recycle() hands a buffer back, which
// starts the next read. A buffer whose read hung stays out of use until the drive gives it back. Reads go through the
// I/O scheduler at background priority. Thread rule: one thread. The destructor cancels what has not started and waits.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/cancel.h"
#include "io/io_scheduler.h"

namespace deltafin {

class RecordStream {
 public:
  struct Item {
    size_t index = 0;  // in the list
    std::byte* buffer = nullptr;
    Status status;
    bool hung = false;  // the buffer must not be touched; Recycle() knows
  };
  // Describes the reads of record `index` into `buffer`; how many; 0: nothing to read, the item comes at once.
  using Parts = std::function<size_t(size_t index, std::byte* buffer, std::span<ReadPart> out)>;

  // `buffer_bytes` a multiple of the page; at least one buffer.
  static Result<std::unique_ptr<RecordStream>> Create(IoScheduler& io, size_t records, size_t buffers,
                                                      uint64_t buffer_bytes, Parts parts);
  ~RecordStream();
  RecordStream(const RecordStream&) = delete;
  RecordStream& operator=(const RecordStream&) = delete;

  // Empty after the last record. kCancelled when cancelled; kIo when every buffer hangs.
  Result<std::optional<Item>> Next(CancelToken cancel);
  void Recycle(const Item& item);

 private:
  struct Slot {
    std::byte* buffer = nullptr;
    size_t index = 0;
    bool arrived = false;
    int owed = 0;  // calls that are still to come
    Status status;
  };
  RecordStream(IoScheduler& io, size_t records, Parts parts) : io_(io), records_(records), parts_(std::move(parts)) {}
  void Start(Slot& slot);
  void Finish(Slot& slot, Status status);

  IoScheduler& io_;
  const size_t records_;
  const Parts parts_;
  IoTag tag_ = 0;
  AlignedBuffer memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Slot> slots_;      // addresses stay
  std::deque<Slot*> in_order_;  // started, not given yet
  std::vector<Slot*> given_;
  size_t next_ = 0;  // record to start
};

}  // namespace deltafin
