// LayerStreamer: units of dense weights that do not stay in memory, passing through a ring of buffers.
//
// While one unit is in use the next ones, in ring order, are being read. Pinning another unit than the next works and
// costs a read. What the source names, the scheduler and the layouts outlive the streamer. Nothing is allocated after
// Create(). Thread rule: engine thread only. Errors: those of the reads, naming the unit, and kCancelled; the unit can
// be pinned again. A buffer that reads are still writing to is nobody's until they end; the destructor does not wait
// for them (checkpoint/read_group.h). Reads that hang keep their buffer; when no other is left, pinning is kDeadline.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "checkpoint/unit_layout.h"
#include "io/io_scheduler.h"

namespace deltafin {

class LayerStreamer {
 public:
  // `units`: which of `layouts` are streamed, ascending. Reading the first ones begins at once.
  static Result<std::unique_ptr<LayerStreamer>> Create(const DenseSource& source, IoScheduler& io,
                                                       const std::vector<UnitLayout>& layouts, std::vector<int> units,
                                                       int buffers);
  // Bytes of one buffer.
  static uint64_t BufferBytes(const std::vector<UnitLayout>& layouts, const std::vector<int>& units);

  ~LayerStreamer();
  LayerStreamer(const LayerStreamer&) = delete;
  LayerStreamer& operator=(const LayerStreamer&) = delete;

  // Where the unit's buffer is, settled. At most as many units as there are buffers may be pinned.
  // A cancellation is noticed within 50 ms, also while a read hangs; reads on their way run on, and a later Pin of the
  // unit joins them.
  Result<const std::byte*> Pin(int unit, CancelToken cancel);
  void Unpin(int unit);
  // Whether the ring order has this unit. Read-ahead leaves out what is not expected; pinning it works all the same.
  // Does nothing for a unit that is not streamed. At first every unit is expected.
  void Expect(int unit, bool expected);

  // Payload of the units that were read and then pinned; a unit read ahead in vain does not count.
  uint64_t streamed_bytes() const { return streamed_bytes_; }
  double wait_seconds() const { return wait_seconds_; }

 private:
  struct Buffer {
    std::byte* data = nullptr;
    IoTag tag = 0;
    int unit = -1;
    int pins = 0;
    bool settled = false;
    ReadGroup reads;
  };

  LayerStreamer(const DenseSource& source, IoScheduler& io, const std::vector<UnitLayout>& layouts,
                std::vector<int> units, int buffers);
  Buffer* Find(int unit);
  size_t Position(int unit) const;
  // Steps from `position` to the unit in ring order; more than any other unit's when it is not expected.
  size_t Distance(size_t position, int unit) const;
  // An unpinned buffer that nothing is being read into, emptied; waits for one, unless every one hangs.
  Result<Buffer*> Claim(size_t position, CancelToken cancel);
  Buffer& BestToClaim(size_t position) const;
  void Start(Buffer& buffer, int unit, IoPriority priority);
  Status Read(int unit, Buffer*& buffer, CancelToken cancel);
  // Forgets the unit of a buffer without reads in flight.
  static void Empty(Buffer& buffer);
  void ReadAhead(size_t position);

  const DenseSource source_;
  IoScheduler& io_;
  const std::vector<UnitLayout>& layouts_;
  const std::vector<int> units_;
  std::vector<bool> checked_;  // [units] whether all bytes were compared with their checksum, if they have one
  std::shared_ptr<AlignedBuffer> memory_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  SteadyClock clock_;
  int unexpected_ = -1;  // the unit that the ring order leaves out
  size_t next_ = 0;      // position after the last pin
  uint64_t streamed_bytes_ = 0;
  double wait_seconds_ = 0;
};

}  // namespace deltafin
