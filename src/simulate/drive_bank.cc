#include "simulate/drive_bank.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace deltafin::simulate {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// What rounding may leave of a read that is over.
constexpr double kNothing = 1e-3;

}  // namespace

DriveBank::DriveBank(const Machine& machine, double share) : hub_rates_(machine.hub_rates) {
  for (double& rate : hub_rates_) rate *= share;
  for (const Drive& drive : machine.drives) {
    State state;
    state.rate = drive.bytes_per_second * share;
    state.first_byte = drive.first_byte_seconds;
    state.hub = drive.hub;
    drives_.push_back(std::move(state));
  }
}

void DriveBank::Submit(size_t drive, const DriveRead& read, bool ahead) {
  DFIN_CHECK(drive < drives_.size() && read.bytes >= 0, "a read goes to a drive");
  State& d = drives_[drive];
  (ahead ? d.ahead : d.wanted).push_back(read);
  (ahead ? d.ahead_bytes : d.backlog) += read.bytes;
  if (d.active) return;
  Begin(d);
  ShareHubs();
}

void DriveBank::Promote(int64_t tag) {
  for (State& d : drives_) {
    for (auto it = d.ahead.begin(); it != d.ahead.end();) {
      if (it->tag != tag) {
        ++it;
        continue;
      }
      d.backlog += it->bytes;
      d.ahead_bytes -= it->bytes;
      d.wanted.push_back(*it);
      it = d.ahead.erase(it);
    }
  }
}

bool DriveBank::Drop(int64_t tag, int count) {
  const auto is_it = [&](const DriveRead& read) { return read.tag == tag; };
  std::ptrdiff_t waiting = 0;
  for (const State& d : drives_) waiting += std::count_if(d.ahead.begin(), d.ahead.end(), is_it);
  if (waiting != count) return false;
  for (State& d : drives_) {
    for (const DriveRead& read : d.ahead)
      if (is_it(read)) d.ahead_bytes -= read.bytes;
    std::erase_if(d.ahead, is_it);
  }
  return true;
}

bool DriveBank::Next(double until, int64_t* tag) {
  for (;;) {
    const double end = NextEnd();
    const double arrival = arriving_.empty() ? kNever : arriving_.top().at;
    if (end == kNever && arrival == kNever && until == kNever) return false;
    if (std::min(end, arrival) > until) {
      Run(until);
      return false;
    }
    if (arrival <= end) {
      Run(arrival);
      *tag = arriving_.top().tag;
      arriving_.pop();
      return true;
    }
    Run(end);
  }
}

void DriveBank::Begin(State& d) {
  d.active = !d.wanted.empty() || !d.ahead.empty();
  if (!d.active) return;
  d.active_ahead = d.wanted.empty();
  std::deque<DriveRead>& queue = d.active_ahead ? d.ahead : d.wanted;
  d.current = queue.front();
  queue.pop_front();
  if (d.active_ahead) d.ahead_bytes -= d.current.bytes;
  d.left = d.current.bytes;
  d.rate_now = d.rate;
  ++busy_drives_;
}

// Bytes over rates; one pass over the drives for each hub.
void DriveBank::ShareHubs() {
  for (size_t hub = 0; hub < hub_rates_.size(); ++hub) {
    double wanted = 0;
    for (const State& d : drives_)
      if (d.active && d.hub == static_cast<int>(hub)) wanted += d.rate;
    const double part = wanted > hub_rates_[hub] ? hub_rates_[hub] / wanted : 1;
    for (State& d : drives_)
      if (d.active && d.hub == static_cast<int>(hub)) d.rate_now = d.rate * part;
  }
}

double DriveBank::NextEnd() const {
  double end = kNever;
  for (const State& d : drives_)
    if (d.active) end = std::min(end, now_ + d.left / d.rate_now);
  return end;
}

// No read ends before `until`.
void DriveBank::Run(double until) {
  const double seconds = std::max(0.0, until - now_);
  now_ = std::max(now_, until);
  bool changed = false;
  for (State& d : drives_) {
    if (!d.active) continue;
    d.left -= seconds * d.rate_now;
    d.busy += seconds;
    // The second: too little is left to move the clock.
    if (d.left > kNothing && now_ + d.left / d.rate_now > now_) continue;
    d.bytes += d.current.bytes;
    if (!d.active_ahead) d.backlog -= d.current.bytes;
    arriving_.push({.at = now_ + d.first_byte, .order = order_++, .tag = d.current.tag});
    --busy_drives_;
    Begin(d);
    changed = true;
  }
  if (changed) ShareHubs();
}

}  // namespace deltafin::simulate
