// drive_read_run: one measurement: keeps a given number of reads in flight on one or several drives and times them.
//
// Goes through an IoEngine, so that what is measured is what reads weights. All drives of a run share the engine and
// one thread, as in the I/O scheduler. Owns nothing but counters. Errors: kIo and kCorrupt of a read, kCancelled.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/result.h"
#include "io/drive_grid.h"
#include "io/drive_spans.h"
#include "io/drive_test_file.h"
#include "io/io_engine.h"

namespace deltafin {

// One drive's part in a run.
struct ReadStream {
  const DriveTestFiles* files = nullptr;
  UnreadSpans* spans = nullptr;
  DriveSetting setting;
  bool direct = true;
};

struct StreamRate {
  uint64_t reads = 0, bytes = 0;  // all that ended
  // After the queue was filled once, until the reads stopped (of a drive alone: until the last one ended).
  double bytes_per_second = 0;
  double latency_p50_seconds = 0, latency_p99_seconds = 0;
};

// A run ends when time is up or one stream has read its bytes or has no span left. `limits` are for each stream.
// `memory` is aligned as an AlignedBuffer and holds what all streams have in flight; the engine is deep enough for it.
// Reads go through all of the memory in turn: weights never land in memory that the processor's caches still hold, and
// where a processor copies them (virtual disks) that is slower.
Result<std::vector<StreamRate>> RunReads(IoEngine& engine, std::span<const ReadStream> streams,
                                         const CellLimits& limits, MutBytes memory, const Clock& clock,
                                         CancelToken cancel);

}  // namespace deltafin
