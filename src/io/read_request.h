// read_request.h: one read, as all of src/io speaks of it: which bytes of which file, to where, how urgent.
//
// Offsets and lengths are any bytes; what the drive wants (whole aligned blocks) is added in one place,
// read_progress.h. Value types; the file and the destination outlive the read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "io/direct_file.h"

namespace deltafin {

// Demand reads somebody waits for; prefetch reads will be wanted soon (the next layer's dense weights); guesses may be
// wanted soon (experts); background reads are nobody's hurry.
enum class IoPriority : uint8_t { kDemand = 0, kPrefetch = 1, kGuess = 2, kBackground = 3 };
inline constexpr int kIoPriorities = 4;

// Names a group of reads that may be cancelled together (IoScheduler::NewTag()). 0 is "no group".
using IoTag = uint64_t;

// What the caller wants: bytes [offset, offset + bytes) of a file. The read is widened to the file's alignment, so the
// wanted bytes land at destination + offset % file->alignment().
struct ReadRequest {
  const DirectFile* file = nullptr;  // outlives the read
  uint64_t offset = 0;               // any byte
  uint64_t bytes = 0;                // > 0
  std::byte* destination = nullptr;  // aligned to file->alignment(), with room for WidenedBytes()
};

// A part of a larger read: bytes of one drive. Where a second drive holds the same bytes, either may be asked.
struct ReadPart {
  ReadRequest request;
  int32_t drive = 0;  // queue of the scheduler: index into its drives
  struct Copy {
    const DirectFile* file = nullptr;  // null: there is none
    uint64_t offset = 0;               // of the same bytes
    int32_t drive = -1;
  } copy = {};
};

// Bytes that the widened read takes from the device and writes to the destination (at most; less at the end of the
// file).
inline uint64_t WidenedBytes(uint64_t offset, uint64_t bytes, uint64_t alignment) {
  return AlignUp(offset + bytes, alignment) - AlignDown(offset, alignment);
}
// The same for an unknown offset: what a slot needs to hold any record of this size.
inline uint64_t WidenedBytesAnywhere(uint64_t bytes, uint64_t alignment) {
  return AlignUp(bytes + alignment - 1, alignment);
}

}  // namespace deltafin
