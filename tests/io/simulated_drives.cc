#include "io/simulated_drives.h"

#include <algorithm>

#include "base/check.h"

namespace deltafin::test {
namespace {

class SimulatedEngine final : public IoEngine {
 public:
  SimulatedEngine(SimulatedDrives* drives, int depth) : drives_(drives), depth_(depth) {}

  std::string name() const override { return "simulated"; }
  int depth() const override { return depth_; }
  void Wake() override {}

  void Submit(uint64_t id, const ReadRequest& request) override {
    DFIN_CHECK(pending_.size() < static_cast<size_t>(depth_), "more reads submitted than the engine's depth");
    drives_->reads.push_back({request.file->path(), request.offset, request.bytes});
    if (drives_->on_read) drives_->on_read();
    const auto drive = std::find_if(drives_->drives.begin(), drives_->drives.end(), [&](const SimulatedDrive& d) {
      return request.file->path().rfind(d.path, 0) == 0;
    });
    DFIN_CHECK(drive != drives_->drives.end(), "a read of a file that no drive has");
    pending_.push_back({id, request.bytes, EndOf(*drive, request), drive->fails});
  }

  size_t Wait(std::span<IoCompletion> out, int64_t timeout_ns) override {
    if (pending_.empty()) return 0;
    int64_t& now = drives_->clock.now_ns;
    const auto next = std::min_element(pending_.begin(), pending_.end(),
                                       [](const Pending& a, const Pending& b) { return a.due_ns < b.due_ns; });
    if (timeout_ns >= 0 && next->due_ns > now + timeout_ns) {
      now += timeout_ns;
      return 0;
    }
    now = std::max(now, next->due_ns);
    size_t count = 0;
    for (size_t i = 0; i < pending_.size() && count < out.size();) {
      if (pending_[i].due_ns > now) {
        ++i;
        continue;
      }
      out[count] = {pending_[i].id, {}, pending_[i].bytes};
      if (pending_[i].fails) out[count].status = Fail(ErrorCode::kIo, "simulated: Input/output error");
      ++count;
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return count;
  }

 private:
  struct Pending {
    uint64_t id = 0;
    uint64_t bytes = 0;
    int64_t due_ns = 0;
    bool fails = false;
  };

  int64_t EndOf(SimulatedDrive& drive, const ReadRequest& request) {
    const int64_t now = drives_->clock.now_ns;
    const double rate = request.file->buffered() ? drive.buffered_rate : drive.direct_rate;
    const auto pass = [&](int64_t& free_at, double at_rate) {
      free_at = std::max(free_at, now) + static_cast<int64_t>(static_cast<double>(request.bytes) / at_rate * 1e9);
      return free_at;
    };
    int64_t end = pass(drive.free_at_ns, rate);
    if (drive.hub >= 0) {
      const size_t hub = static_cast<size_t>(drive.hub);
      drives_->hub_free_at_ns.resize(drives_->hub_rates.size());
      end = std::max(end, pass(drives_->hub_free_at_ns[hub], drives_->hub_rates[hub]));
    }
    return end + drive.latency_ns;
  }

  SimulatedDrives* drives_;
  int depth_;
  std::vector<Pending> pending_;
};

}  // namespace

std::unique_ptr<IoEngine> SimulatedDrives::MakeEngine(int depth) {
  return std::make_unique<SimulatedEngine>(this, depth);
}

}  // namespace deltafin::test
