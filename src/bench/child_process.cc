#include "bench/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"

extern char** environ;

namespace deltafin {
namespace {

constexpr size_t kErrorBytes = 4096;

class Pipe {
 public:
  ~Pipe() {
    CloseReader();
    CloseWriter();
  }
  bool Open() {
    int ends[2];
    if (pipe(ends) != 0) return false;
    reader_ = ends[0];
    writer_ = ends[1];
    fcntl(reader_, F_SETFD, FD_CLOEXEC);
    fcntl(writer_, F_SETFD, FD_CLOEXEC);
    return true;
  }
  int reader() const { return reader_; }
  int writer() const { return writer_; }
  void CloseReader() {
    if (reader_ >= 0) close(std::exchange(reader_, -1));
  }
  void CloseWriter() {
    if (writer_ >= 0) close(std::exchange(writer_, -1));
  }

 private:
  int reader_ = -1, writer_ = -1;
};

// Signals as a fresh program expects them, whatever this one made of them.
int Spawn(const ChildOptions& options, int out, int err, pid_t* pid) {
  std::vector<char*> arguments = {const_cast<char*>("deltafin")};
  for (const std::string& argument : options.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t usual;
  sigemptyset(&usual);
  for (const int number : {SIGINT, SIGTERM, SIGPIPE, SIGXFSZ}) sigaddset(&usual, number);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  const int failed = posix_spawn(pid, options.program.c_str(), &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return failed;
}

class RunningChild {
 public:
  RunningChild(const ChildOptions& options, pid_t pid) : options_(options), pid_(pid) {}

  Result<ChildExit> Watch(Pipe& out, Pipe& err) {
    for (;;) {
      pollfd fds[2] = {{out.reader(), POLLIN, 0}, {err.reader(), POLLIN, 0}};
      poll(fds, 2, std::max(1, static_cast<int>(options_.tick_seconds * 1e3)));
      if (fds[0].revents != 0 && !Read(out, [&](std::string_view bytes) { TakeOutput(bytes); })) out.CloseReader();
      if (fds[1].revents != 0 && !Read(err, [&](std::string_view bytes) { TakeErrors(bytes); })) err.CloseReader();
      if (line_.size() > ChildOptions::kMostLineBytes) too_long_ = true;
      if (options_.on_tick && now() - ticked_ >= options_.tick_seconds) {
        ticked_ = now();
        options_.on_tick(ticked_);
      }
      StopIfAsked();
      if (out.reader() < 0 && err.reader() < 0 && Ended()) break;
    }
    exit_.seconds = now();
    if (options_.on_tick) options_.on_tick(exit_.seconds);
    if (!line_.empty() && options_.on_line) options_.on_line(line_, now());
    if (too_long_) return Fail(ErrorCode::kIo, options_.program, ": wrote a line that does not end");
    return exit_;
  }

 private:
  double now() const { return SecondsBetween(start_, clock_.NowNs()); }

  // False: nothing more will come.
  template <typename Take>
  bool Read(const Pipe& pipe, Take take) {
    char buffer[65536];
    const ssize_t got = read(pipe.reader(), buffer, sizeof buffer);
    if (got > 0) take(std::string_view(buffer, static_cast<size_t>(got)));
    return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
  }

  void TakeOutput(std::string_view bytes) {
    const double seconds = now();
    for (size_t end; (end = bytes.find('\n')) != std::string_view::npos; bytes.remove_prefix(end + 1)) {
      line_.append(bytes.substr(0, end));
      if (options_.on_line) options_.on_line(line_, seconds);
      line_.clear();
    }
    if (!too_long_) line_.append(bytes);
  }

  void TakeErrors(std::string_view bytes) {
    exit_.errors.append(bytes);
    if (exit_.errors.size() > kErrorBytes) exit_.errors.erase(0, exit_.errors.size() - kErrorBytes);
  }

  void StopIfAsked() {
    if (!options_.cancel.cancelled() && !too_long_) return;
    if (asked_at_ < 0) {
      exit_.cancelled = options_.cancel.cancelled();
      asked_at_ = now();
      kill(-pid_, SIGTERM);
    } else if (now() - asked_at_ > options_.grace_seconds) {
      kill(-pid_, SIGKILL);
    }
  }

  bool Ended() {
    int status = 0;
    rusage used{};
    const pid_t ended = wait4(pid_, &status, WNOHANG, &used);
    if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
    if (ended == pid_) {
      exit_.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      exit_.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
      };
      exit_.processor_seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
    }
    return true;
  }

  const ChildOptions& options_;
  const pid_t pid_;
  const SteadyClock clock_;
  const int64_t start_ = clock_.NowNs();
  double ticked_ = 0, asked_at_ = -1;
  bool too_long_ = false;
  std::string line_;
  ChildExit exit_;
};

}  // namespace

Result<ChildExit> RunChild(const ChildOptions& options) {
  Pipe out, err;
  if (!out.Open() || !err.Open()) return Fail(ErrorCode::kIo, "a pipe cannot be made: ", std::strerror(errno));
  pid_t pid = 0;
  if (const int failed = Spawn(options, out.writer(), err.writer(), &pid); failed != 0)
    return Fail(ErrorCode::kIo, options.program, ": cannot be started: ", std::strerror(failed));
  RunningChild child(options, pid);
  out.CloseWriter();
  err.CloseWriter();
  return child.Watch(out, err);
}

}  // namespace deltafin
