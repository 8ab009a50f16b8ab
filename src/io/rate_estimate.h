// RateEstimate: how fast a drive is right now, from when it answers; and the chunk and window that suit a rate.
//
// Counts only time in which at least one chunk was out, so that a drive that nobody asks, or only for a few bytes, does
// not look slow. The last few answers decide, and a drive that owes an answer for longer than usual counts as slower
// from that moment, not from the answer on. A drive that was found slow and is not asked any more is trusted again
// little by little, so that it is tried. Value type, thread-compatible; nanoseconds are the caller's clock.
#pragma once

#include <cstdint>

namespace deltafin {

class RateEstimate {
 public:
  // `measured` bytes per second, from a profile; 0 = unknown.
  explicit RateEstimate(double measured);

  // A chunk goes out: bytes out before and after it; `chunk_bytes` is what counts as a busy drive.
  void HandOut(int64_t now_ns, uint64_t bytes_before, uint64_t bytes_after, uint64_t chunk_bytes);
  // An answer with `bytes` (0: it failed, which says nothing about speed), and what is still out.
  void Answer(int64_t now_ns, uint64_t bytes, uint64_t bytes_after, uint64_t chunk_bytes);

  // Bytes per second; 0 as long as nothing is known.
  double Current(int64_t now_ns) const;
  // The rate that chunk and window are made for: slower to follow, because a small window makes a slow drive. 0 = use
  // the sizes for an unknown drive.
  double ForSizes(int64_t now_ns) const;

 private:
  double bytes_ = 0;      // of the last answers, older ones count less
  double seconds_ = 0;    // ... and how long they took
  double reference_ = 0;  // measured, or the best seen
  bool measured_ = false;
  uint64_t seen_bytes_ = 0;
  double seen_seconds_ = 0;
  int64_t busy_since_ns_ = -1;  // last answer, or first hand-out to the idle drive; -1: nothing is out
  int64_t full_since_ns_ = -1;  // the same, for times with a whole chunk out
  int64_t idle_since_ns_ = 0;
};

// About a millisecond of the rate, a power of two from 64 KiB to 2 MiB; 1 MiB when the rate is unknown (0).
uint64_t ChunkBytesFor(double bytes_per_second);
// Eight chunks or 32 milliseconds of the rate, whichever is more, at most 32 MiB; 32 MiB when the rate is unknown.
uint64_t WindowBytesFor(double bytes_per_second, uint64_t chunk_bytes);

}  // namespace deltafin
