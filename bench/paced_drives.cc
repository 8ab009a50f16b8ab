// paced_drives: a FUSE file server whose files behave like drives of a given speed. For bench/drive_ladder; needs root.
//
//   paced_drives MOUNTPOINT IMAGE...
//
// IMAGE i appears as MOUNTPOINT/drive<i>, to be put under a loop device. A drive is a single server: a read of n bytes
// ends at max(now, drive free) + n / rate, plus a latency; reads are answered in the order they came. Writes are not
// paced. Lines written to MOUNTPOINT/control change a drive at once:
//   rate I BYTES_PER_SECOND (0: as fast as it goes)   latency I MICROSECONDS   fail I 0|1 (EIO)   hold I 0|1 (no
//   answers)
// Runs in the foreground until SIGTERM or the unmount. One thread takes requests, one a drive answers them.
#define FUSE_USE_VERSION 31
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr fuse_ino_t kRoot = FUSE_ROOT_ID, kControl = 2, kFirstDrive = 16;
constexpr double kForever = 1e9;  // seconds that the kernel may keep what it knows of a file

class PacedDrive {
 public:
  explicit PacedDrive(int fd) : fd_(fd), thread_([this] { Serve(); }) {}
  ~PacedDrive() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
    close(fd_);
  }
  PacedDrive(const PacedDrive&) = delete;
  PacedDrive& operator=(const PacedDrive&) = delete;

  int fd() const { return fd_; }
  off_t size() const {
    struct stat info {};
    return fstat(fd_, &info) == 0 ? info.st_size : 0;
  }

  void Read(fuse_req_t request, size_t bytes, off_t offset) {
    {
      const std::lock_guard lock(mutex_);
      free_at_ = std::max(free_at_, Clock::now());
      if (rate_ > 0)
        free_at_ += std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(bytes) / rate_ * 1e9));
      waiting_.push_back({request, bytes, offset, free_at_ + latency_});
    }
    changed_.notify_all();
  }

  bool failing() {
    const std::lock_guard lock(mutex_);
    return fail_;
  }

  // False when the word is unknown.
  bool Set(const std::string& what, double value) {
    {
      const std::lock_guard lock(mutex_);
      if (what == "rate")
        rate_ = value;
      else if (what == "latency")
        latency_ = std::chrono::nanoseconds(static_cast<int64_t>(value * 1e3));
      else if (what == "fail")
        fail_ = value != 0;
      else if (what == "hold")
        hold_ = value != 0;
      else
        return false;
    }
    changed_.notify_all();
    return true;
  }

 private:
  struct Waiting {
    fuse_req_t request;
    size_t bytes;
    off_t offset;
    Clock::time_point due;
  };

  void Serve() {
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // else every answer is up to 50 us late
    std::vector<char> memory;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stop_ || (!waiting_.empty() && !hold_); });
      if (stop_) break;
      const Waiting next = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      memory.resize(std::max(memory.size(), next.bytes));
      const ssize_t got = pread(fd_, memory.data(), next.bytes, next.offset);
      const int error = got < 0 ? errno : 0;
      std::this_thread::sleep_until(next.due);
      lock.lock();
      const bool fail = fail_;
      lock.unlock();
      if (fail || error != 0)
        fuse_reply_err(next.request, fail ? EIO : error);
      else
        fuse_reply_buf(next.request, memory.data(), static_cast<size_t>(got));
      lock.lock();
    }
    for (const Waiting& rest : waiting_) fuse_reply_err(rest.request, EIO);
  }

  const int fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  Clock::time_point free_at_;
  double rate_ = 0;
  std::chrono::nanoseconds latency_{0};
  bool fail_ = false, hold_ = false, stop_ = false;
  std::thread thread_;
};

std::vector<std::unique_ptr<PacedDrive>>& Drives(fuse_req_t request) {
  return *static_cast<std::vector<std::unique_ptr<PacedDrive>>*>(fuse_req_userdata(request));
}

PacedDrive* DriveOf(fuse_req_t request, fuse_ino_t inode) {
  auto& drives = Drives(request);
  return inode >= kFirstDrive && inode - kFirstDrive < drives.size() ? drives[inode - kFirstDrive].get() : nullptr;
}

// False when there is no such file.
bool Attributes(fuse_req_t request, fuse_ino_t inode, struct stat* out) {
  *out = {};
  out->st_ino = inode;
  out->st_nlink = 1;
  if (inode == kRoot) {
    out->st_mode = S_IFDIR | 0755;
  } else if (inode == kControl) {
    out->st_mode = S_IFREG | 0600;
  } else if (const PacedDrive* drive = DriveOf(request, inode)) {
    out->st_mode = S_IFREG | 0600;
    out->st_size = drive->size();
  } else {
    return false;
  }
  return true;
}

void Lookup(fuse_req_t request, fuse_ino_t, const char* name) {
  fuse_entry_param entry{};
  unsigned index = 0;
  if (std::strcmp(name, "control") == 0)
    entry.ino = kControl;
  else if (std::sscanf(name, "drive%u", &index) == 1)
    entry.ino = kFirstDrive + index;
  if (entry.ino == 0 || !Attributes(request, entry.ino, &entry.attr)) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  entry.attr_timeout = entry.entry_timeout = kForever;
  fuse_reply_entry(request, &entry);
}

void GetAttributes(fuse_req_t request, fuse_ino_t inode, fuse_file_info*) {
  struct stat attributes {};
  if (Attributes(request, inode, &attributes))
    fuse_reply_attr(request, &attributes, kForever);
  else
    fuse_reply_err(request, ENOENT);
}

// The control file is opened with O_TRUNC by shells; sizes never change.
void SetAttributes(fuse_req_t request, fuse_ino_t inode, struct stat*, int, fuse_file_info* file) {
  GetAttributes(request, inode, file);
}

void Open(fuse_req_t request, fuse_ino_t inode, fuse_file_info* file) {
  if (inode != kControl && DriveOf(request, inode) == nullptr) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  file->direct_io = 1;
  fuse_reply_open(request, file);
}

void Read(fuse_req_t request, fuse_ino_t inode, size_t bytes, off_t offset, fuse_file_info*) {
  if (PacedDrive* drive = DriveOf(request, inode))
    drive->Read(request, bytes, offset);
  else
    fuse_reply_buf(request, nullptr, 0);
}

bool RunCommand(fuse_req_t request, const std::string& line) {
  std::istringstream in(line);
  std::string what;
  size_t index = 0;
  double value = 0;
  auto& drives = Drives(request);
  return (in >> what >> index >> value) && index < drives.size() && drives[index]->Set(what, value);
}

void WriteControl(fuse_req_t request, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!RunCommand(request, line)) {
      fuse_reply_err(request, EINVAL);
      return;
    }
  }
  fuse_reply_write(request, text.size());
}

void Write(fuse_req_t request, fuse_ino_t inode, const char* bytes, size_t count, off_t offset, fuse_file_info*) {
  PacedDrive* drive = DriveOf(request, inode);
  if (drive == nullptr) {
    WriteControl(request, std::string(bytes, count));
    return;
  }
  if (drive->failing()) {
    fuse_reply_err(request, EIO);
    return;
  }
  const ssize_t written = pwrite(drive->fd(), bytes, count, offset);
  if (written < 0)
    fuse_reply_err(request, errno);
  else
    fuse_reply_write(request, static_cast<size_t>(written));
}

void Sync(fuse_req_t request, fuse_ino_t, int, fuse_file_info*) { fuse_reply_err(request, 0); }

void Init(void*, fuse_conn_info* connection) {
  connection->max_background = 512;
  connection->congestion_threshold = 512;
  connection->max_readahead = 0;
}

int Serve(const char* mount_point, std::vector<std::unique_ptr<PacedDrive>>& drives) {
  fuse_lowlevel_ops operations{};
  operations.init = Init;
  operations.lookup = Lookup;
  operations.getattr = GetAttributes;
  operations.setattr = SetAttributes;
  operations.open = Open;
  operations.read = Read;
  operations.write = Write;
  operations.fsync = Sync;

  char program[] = "paced_drives";
  char* arguments[] = {program};
  fuse_args args = FUSE_ARGS_INIT(1, arguments);
  fuse_session* session = fuse_session_new(&args, &operations, sizeof operations, &drives);
  if (session == nullptr) return 1;
  int result = 1;
  if (fuse_set_signal_handlers(session) == 0 && fuse_session_mount(session, mount_point) == 0) {
    result = fuse_session_loop(session) == 0 ? 0 : 1;
    fuse_session_unmount(session);
  }
  fuse_remove_signal_handlers(session);
  // Threads answer what still waits, so they end before the session.
  drives.clear();
  fuse_session_destroy(session);
  fuse_opt_free_args(&args);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: paced_drives MOUNTPOINT IMAGE...\n");
    return 2;
  }
  std::vector<std::unique_ptr<PacedDrive>> drives;
  for (int i = 2; i < argc; ++i) {
    const int fd = open(argv[i], O_RDWR | O_CLOEXEC);
    if (fd < 0) {
      std::fprintf(stderr, "paced_drives: %s: %s\n", argv[i], std::strerror(errno));
      return 1;
    }
    drives.push_back(std::make_unique<PacedDrive>(fd));
  }
  return Serve(argv[1], drives);
}
