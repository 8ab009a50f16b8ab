#include "io/uring_engine.h"

#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "io/read_progress.h"

namespace deltafin {
namespace {

// user_data of the poll on the wake-up descriptor; reads use their slot number.
constexpr uint64_t kWakeUp = ~uint64_t{0};
// user_data of an entry whose read was given up before the kernel took it.
constexpr uint64_t kNothing = kWakeUp - 1;

Failure Refused(int error_number) {
  const char* advice = "use the pread engine";
  if (error_number == ENOSYS) advice = "the kernel has no io_uring: use Linux 5.6 or later, or the pread engine";
  if (error_number == EPERM || error_number == EACCES)
    advice =
        "it is switched off here: set sysctl kernel.io_uring_disabled=0 (in a container, allow io_uring_setup in its "
        "seccomp profile), or use the pread engine";
  if (error_number == ENOMEM)
    advice = "the limit of locked memory is too small: raise it with ulimit -l, or use the pread engine";
  return Fail(ErrorCode::kUnavailable, "io_uring: ", std::strerror(error_number), ": ", advice);
}

class UringEngine final : public IoEngine {
 public:
  static Result<std::unique_ptr<IoEngine>> Create(int depth) {
    std::unique_ptr<UringEngine> engine(new UringEngine(depth));
    // One more entry than reads, for the wake-up poll: a submission entry is then always free.
    const int result = io_uring_queue_init(static_cast<unsigned>(depth) + 1, &engine->ring_, 0);
    if (result < 0) return Refused(-result);
    engine->ring_open_ = true;
    if (!engine->HasReads()) return Refused(ENOSYS);
    engine->wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (engine->wake_fd_ < 0) return Fail(ErrorCode::kUnavailable, "io_uring: eventfd: ", std::strerror(errno));
    engine->ArmWakeUp();
    return engine;
  }

  // Reads in flight end first: the kernel writes into memory that others own.
  ~UringEngine() override {
    IoCompletion ignored[8];
    while (in_flight_ > 0) Wait(ignored, -1);
    if (ring_open_) io_uring_queue_exit(&ring_);
    if (wake_fd_ >= 0) close(wake_fd_);
  }

  std::string name() const override { return "uring"; }
  int depth() const override { return static_cast<int>(reads_.size()); }

  void Submit(uint64_t id, const ReadRequest& request) override {
    DFIN_CHECK(!free_.empty(), "more reads submitted than the engine's depth");
    const uint32_t slot = free_.back();
    free_.pop_back();
    reads_[slot] = {id, ReadProgress(request)};
    ++in_flight_;
    PrepareRead(slot);
  }

  size_t Wait(std::span<IoCompletion> out, int64_t timeout_ns) override {
    const int64_t give_up_ns = timeout_ns < 0 ? -1 : clock_.NowNs() + timeout_ns;
    bool woken = false;
    size_t count = 0;
    while (count == 0 && !woken) {
      const bool more = broken_ ? PollBroken(give_up_ns, &woken) : EnterKernel(give_up_ns);
      for (; count < out.size() && !failed_.empty(); ++count) TakeFailed(&out[count]);
      io_uring_cqe* entry = nullptr;
      while (count < out.size() && io_uring_peek_cqe(&ring_, &entry) == 0) {
        const uint64_t who = entry->user_data;
        const int result = entry->res;
        io_uring_cqe_seen(&ring_, entry);
        if (who == kNothing) continue;
        if (who == kWakeUp) {
          woken = true;
          ClearWakeUp();
        } else if (Reap(static_cast<uint32_t>(who), result, &out[count])) {
          ++count;
        }
      }
      if (!more) break;
    }
    return count;
  }

  void Wake() override {
    const uint64_t one = 1;
    // Fails only when the counter is full, and then it is awake already.
    [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
  }

 private:
  struct InFlight {
    uint64_t id = 0;
    ReadProgress progress;
  };

  explicit UringEngine(int depth) : reads_(static_cast<size_t>(depth)) {
    prepared_.reserve(static_cast<size_t>(depth) + 1);
    failed_.reserve(static_cast<size_t>(depth));
    for (uint32_t slot = static_cast<uint32_t>(depth); slot > 0; --slot) free_.push_back(slot - 1);
  }

  bool HasReads() {
    io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
    if (probe == nullptr) return false;
    const bool has = io_uring_opcode_supported(probe, IORING_OP_READ) != 0;
    io_uring_free_probe(probe);
    return has;
  }

  io_uring_sqe* TakeEntry() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    DFIN_CHECK(entry != nullptr, "the submission ring holds every read and the wake-up");
    return entry;
  }

  void PrepareRead(uint32_t slot) {
    if (broken_) {
      failed_.push_back(slot);
      return;
    }
    const ReadProgress& progress = reads_[slot].progress;
    io_uring_sqe* entry = TakeEntry();
    io_uring_prep_read(entry, progress.request().file->fd(), progress.destination(),
                       static_cast<unsigned>(progress.bytes()), progress.offset());
    entry->user_data = slot;
    prepared_.push_back(entry);
  }

  void ArmWakeUp() {
    if (broken_) return;
    io_uring_sqe* entry = TakeEntry();
    io_uring_prep_poll_add(entry, wake_fd_, POLLIN);
    entry->user_data = kWakeUp;
    prepared_.push_back(entry);
  }

  void ClearWakeUp() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof count);
    ArmWakeUp();
  }

  // Hands over what was prepared and waits until the completion ring holds something; false when the time is up.
  bool EnterKernel(int64_t give_up_ns) {
    for (;;) {
      const int64_t left_ns = give_up_ns < 0 ? 0 : std::max<int64_t>(0, give_up_ns - clock_.NowNs());
      __kernel_timespec limit{left_ns / 1'000'000'000, left_ns % 1'000'000'000};
      io_uring_cqe* entry = nullptr;
      const int result =
          io_uring_submit_and_wait_timeout(&ring_, &entry, 1, give_up_ns < 0 ? nullptr : &limit, nullptr);
      if (io_uring_sq_ready(&ring_) == 0) prepared_.clear();
      if (result >= 0 || io_uring_cq_ready(&ring_) > 0) return true;
      if (result == -ETIME) return false;
      if (result != -EINTR && result != -EAGAIN && result != -EBUSY && result != -ENOMEM) {
        Break(-result);
        return true;
      }
      if (give_up_ns >= 0 && clock_.NowNs() >= give_up_ns) return false;
      // The kernel is short of memory for requests for a moment.
      if (result != -EINTR) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  // The kernel refuses to go on. Reads that it has not taken fail, now and from now on; their entries become nothing,
  // should they ever be taken. Those that it has taken still write into memory that others own, so they are awaited.
  void Break(int error_number) {
    broken_ = true;
    broken_errno_ = error_number;
    const size_t left = std::min<size_t>(io_uring_sq_ready(&ring_), prepared_.size());
    for (size_t i = prepared_.size() - left; i < prepared_.size(); ++i) {
      io_uring_sqe* entry = prepared_[i];
      if (entry->user_data != kWakeUp) failed_.push_back(static_cast<uint32_t>(entry->user_data));
      io_uring_prep_nop(entry);
      entry->user_data = kNothing;
    }
    prepared_.clear();
  }

  // The wait of a broken ring: completions still arrive in the shared ring, so it is looked at every millisecond.
  bool PollBroken(int64_t give_up_ns, bool* woken) {
    if (!failed_.empty() || io_uring_cq_ready(&ring_) > 0) return true;
    pollfd wake{wake_fd_, POLLIN, 0};
    if (poll(&wake, 1, 1) > 0) {
      *woken = true;
      ClearWakeUp();
      return true;
    }
    return give_up_ns < 0 || clock_.NowNs() < give_up_ns;
  }

  void TakeFailed(IoCompletion* out) {
    const uint32_t slot = failed_.back();
    failed_.pop_back();
    ReadProgress& progress = reads_[slot].progress;
    const ReadRequest& request = progress.request();
    *out = {reads_[slot].id,
            Fail(ErrorCode::kIo, "reading ", request.file->path(), ": bytes ", request.offset, " to ",
                 request.offset + request.bytes, ": io_uring_enter: ", std::strerror(broken_errno_),
                 ": start again with the pread engine"),
            progress.bytes_read()};
    free_.push_back(slot);
    --in_flight_;
  }

  // True when the read is final and `out` is filled.
  bool Reap(uint32_t slot, int result, IoCompletion* out) {
    InFlight& read = reads_[slot];
    if (!read.progress.Advance(result)) {
      PrepareRead(slot);
      return false;
    }
    *out = {read.id, read.progress.TakeStatus(), read.progress.bytes_read()};
    free_.push_back(slot);
    --in_flight_;
    return true;
  }

  io_uring ring_{};
  bool ring_open_ = false;
  int wake_fd_ = -1;
  std::vector<InFlight> reads_;  // [depth]
  std::vector<uint32_t> free_;   // slots of reads_ without a read
  int in_flight_ = 0;
  std::vector<io_uring_sqe*> prepared_;  // entries that the kernel may not have taken, in order
  std::vector<uint32_t> failed_;         // slots of reads that a broken ring never took
  bool broken_ = false;                  // the kernel refused an io_uring_enter for good
  int broken_errno_ = 0;
  const SteadyClock clock_;
};

}  // namespace

Result<std::unique_ptr<IoEngine>> CreateUringEngine(int depth) {
  DFIN_CHECK(depth >= 1, "an engine has a depth of at least one");
  return UringEngine::Create(depth);
}

}  // namespace deltafin
