// IoScheduler: the policy of reading, and the one door to the drives: no other code of the engine reads weights.
//
// Every drive has its own queues (demand before prefetch before guesses before background, first come first served
// inside one) and its own window of bytes in flight. A read may have parts on several drives; parts are cut into
// chunks; the read is done when all its bytes are there. Where a second drive holds the same bytes (ReadPart::copy), an
// idle drive takes chunks that wait on a busier one (io/drive_queues.h has the rule), and a failed chunk is read from
// the copy. A copy whose blocks do not lie like those of the part (io/chunk_cut.h) does not count. One thread of its
// own submits and reaps. Of a cancelled read nothing more is handed out.
//
// Faults.
// - A chunk that fails with kIo is tried once more on the same drive, then on its copy (twice as well). A chunk that
//   finds the file too short (kCorrupt) is tried on its copy at once. A read that fails names drive and tries, and what
//   the engine names: file, bytes, errno.
// - A drive that fails kDegradeAfter chunks in a row, or hangs, is degraded for good: what waits for it and has a copy
//   goes to the copy at once, as does all that comes; what has none still is asked of it. `on_degraded` tells it once.
// - A chunk that is out longer than the hang limit ends its read with kDeadline and degrades its drive. It is not read
//   from its copy, because the drive may still write into the destination (see Done): the caller reads again, into
//   other memory, and that read uses copies only. With a copy on a good drive the limit is hang_seconds_with_copy.
// - Behind a drive that answers nothing at all, reads without a good copy end with kDeadline after hang_seconds.
//
// Thread-safe. Callbacks run on the scheduler's thread: they must be short, must not block on reads, and may call Read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "io/drive.h"
#include "io/io_engine.h"

namespace deltafin {

struct IoSchedulerOptions {
  // One queue each; at least one. The rate sizes chunk and window, until enough was read to know better.
  std::vector<DriveInfo> drives = {{}};
  // Largest single read handed to the engine; 0 = from the drive's rate: about a millisecond of it, 64 KiB to 2 MiB.
  uint64_t chunk_bytes = 0;
  // In flight at once on one drive (at least one chunk); 0 = from the drive's rate: 32 milliseconds of it and at
  // least 8 chunks, at most 32 MiB. Guesses use a quarter of it (at least 8 chunks), so that a demand read comes soon.
  uint64_t window_bytes = 0;
  // Background reads use no larger part of the window than guesses: for those who wait for others now and then.
  bool background_yields = false;
  double hang_seconds_with_copy = 2;  // a chunk out for longer ends its read, which is worth reading again
  double hang_seconds = 60;           // ... the same for a chunk without a copy
  // Called at most once a drive, on the scheduler's thread. `reason` names what failed.
  std::function<void(int32_t drive, const std::string& reason)> on_degraded = {};
};

struct IoCounters {
  uint64_t reads = 0;                  // reads that ended with all their bytes
  uint64_t payload_bytes = 0;          // bytes those asked for
  uint64_t device_bytes = 0;           // bytes taken from the drives, alignment included
  uint64_t errors = 0;                 // reads that failed
  uint64_t cancelled = 0;              // reads that were cancelled before all of them was handed out
  uint64_t cancelled_guess_bytes = 0;  // bytes that the drives delivered for those of them that were guesses
  double busy_seconds = 0;             // time with at least one read in flight on any drive
};

class IoScheduler {
 public:
  static constexpr int kDegradeAfter = 3;
  static constexpr size_t kMaxParts = 64;

  // Called for every Read, never inside Read() or Cancel(): all bytes are there, or an error (kIo, kCorrupt,
  // kCancelled, kDeadline). Counted before it is called. Destroyed on the scheduler's thread.
  // Called exactly once, with one exception: after kDeadline the destination still belongs to the drive. A second call,
  // with kCancelled, always follows and says that it no longer does (at once, if nothing was out); until then nobody
  // may use or free it.
  using Done = std::function<void(Status)>;

  // `clock` (null: steady) decides hangs and rates; it outlives the scheduler.
  IoScheduler(std::unique_ptr<IoEngine> engine, IoSchedulerOptions options, const Clock* clock = nullptr);
  // Cancels all reads and waits for what is out; a Read made by a callback meanwhile is cancelled too.
  ~IoScheduler();
  IoScheduler(const IoScheduler&) = delete;
  IoScheduler& operator=(const IoScheduler&) = delete;

  // A tag that nobody else of this scheduler has, never 0. Everybody who cancels takes theirs from here.
  IoTag NewTag();
  // 1 to kMaxParts parts, copied. Their destinations do not overlap.
  void Read(std::span<const ReadPart> parts, IoPriority priority, IoTag tag, Done done);
  // One part on `drive`, no copy.
  void Read(const ReadRequest& request, int32_t drive, IoPriority priority, IoTag tag, Done done);
  // Reads of `tag` end with kCancelled: at once when nothing of them is out, else when what is out is back. Those that
  // are wholly handed out run to their end, repeated tries included.
  void Cancel(IoTag tag);
  // Reads of `tag` that wait at a lower priority join the queue of `priority`, at its end. For a prefetch that somebody
  // now waits for.
  void Raise(IoTag tag, IoPriority priority);

  IoCounters counters() const;
  // One entry a drive, in the order of the options.
  std::vector<DriveCounters> drive_counters() const;
  const std::vector<DriveInfo>& drives() const;
  std::string engine_name() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace deltafin
