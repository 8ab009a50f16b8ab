// LayerStreamer: units of dense weights that do not stay in memory, passing through a ring of buffers.
//
// While one unit is in use the next ones, in ring order, are being read. Pinning another unit than the next works and
// costs a read. The checkpoint, the scheduler and the layouts outlive the streamer. Nothing is allocated after
// Create(). Thread rule: engine thread only. Errors: those of the reads, naming the unit; the unit can be pinned again.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/clock.h"
#include "checkpoint/unit_layout.h"
#include "io/io_scheduler.h"

namespace deltafin {

class LayerStreamer {
 public:
  // `units`: which of `layouts` are streamed, ascending. Reading the first ones begins at once.
  static Result<std::unique_ptr<LayerStreamer>> Create(const Checkpoint& checkpoint, IoScheduler& io,
                                                       const std::vector<UnitLayout>& layouts, std::vector<int> units,
                                                       int buffers);
  // Bytes of one buffer.
  static uint64_t BufferBytes(const std::vector<UnitLayout>& layouts, const std::vector<int>& units);

  ~LayerStreamer();
  LayerStreamer(const LayerStreamer&) = delete;
  LayerStreamer& operator=(const LayerStreamer&) = delete;

  // Where the unit's buffer is, settled. At most as many units as there are buffers may be pinned.
  Result<const std::byte*> Pin(int unit);
  void Unpin(int unit);

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

  LayerStreamer(const Checkpoint& checkpoint, IoScheduler& io, const std::vector<UnitLayout>& layouts,
                std::vector<int> units, int buffers);
  Buffer* Find(int unit);
  size_t Position(int unit) const;
  // Steps from `position` to the unit in ring order.
  size_t Distance(size_t position, int unit) const;
  Buffer& Claim(size_t position);
  void Start(Buffer& buffer, int unit, IoPriority priority);
  // Ends reads in flight and forgets the unit.
  void Empty(Buffer& buffer);
  void ReadAhead(size_t position);

  const Checkpoint& checkpoint_;
  IoScheduler& io_;
  const std::vector<UnitLayout>& layouts_;
  const std::vector<int> units_;
  AlignedBuffer memory_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  SteadyClock clock_;
  uint64_t streamed_bytes_ = 0;
  double wait_seconds_ = 0;
};

}  // namespace deltafin
