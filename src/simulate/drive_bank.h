// DriveBank: the drives of a simulated machine: queues, rates, hubs; an event-driven clock over them.
//
// Each drive delivers one read after the other at its rate; what is ahead of its layer waits until nothing else is
// queued, and is not interrupted once begun. A read arrives its drive's first-byte time after the last byte was
// delivered, which reads in a queue hide. Drives of one hub that are busy together share its rate in proportion to
// their own. Deterministic. Not thread-safe. All times in seconds since the start.
#pragma once

#include <cstdint>
#include <deque>
#include <queue>
#include <vector>

#include "simulate/machine.h"

namespace deltafin::simulate {

struct DriveRead {
  int64_t tag = 0;  // the caller's; several reads may have one
  double bytes = 0;
};

class DriveBank {
 public:
  // Of a drive's rate, reads get `share`.
  DriveBank(const Machine& machine, double share);

  double now() const { return now_; }
  void Submit(size_t drive, const DriveRead& read, bool ahead);
  // Reads ahead with this tag that have not begun become ordinary ones.
  void Promote(int64_t tag);
  // ... are given up, if all `count` of them are still to begin. Whether they were.
  bool Drop(int64_t tag, int count);
  // The next arrival up to `until`, or false; the clock stands at the arrival, or at `until`.
  bool Next(double until, int64_t* tag);
  bool idle() const { return arriving_.empty() && busy_drives_ == 0; }

  size_t drives() const { return drives_.size(); }
  double rate(size_t drive) const { return drives_[drive].rate; }
  double backlog_bytes(size_t drive) const { return drives_[drive].backlog; }    // ordinary reads, begun ones included
  double ahead_bytes(size_t drive) const { return drives_[drive].ahead_bytes; }  // not begun
  double bytes_read(size_t drive) const { return drives_[drive].bytes; }
  double busy_seconds(size_t drive) const { return drives_[drive].busy; }

 private:
  struct State {
    double rate = 0, first_byte = 0;
    int hub = -1;
    std::deque<DriveRead> wanted, ahead;
    bool active = false, active_ahead = false;
    DriveRead current;
    double left = 0;  // bytes of `current`
    double rate_now = 0;
    double backlog = 0, ahead_bytes = 0, bytes = 0, busy = 0;
  };
  struct Arrival {
    double at = 0;
    uint64_t order = 0;  // equal times: as they were read
    int64_t tag = 0;
    bool operator<(const Arrival& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  void Begin(State& drive);
  void ShareHubs();
  void Run(double until);
  double NextEnd() const;

  std::vector<State> drives_;
  std::vector<double> hub_rates_;
  std::priority_queue<Arrival> arriving_;
  double now_ = 0;
  uint64_t order_ = 0;
  int busy_drives_ = 0;
};

}  // namespace deltafin::simulate
