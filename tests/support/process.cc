#include "support/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <utility>

namespace deltafin::test {
namespace {

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    read = ends[0];
    write = ends[1];
  }
};

[[noreturn]] void Exec(const std::string& program, const ProcessOptions& options) {
  std::vector<char*> arguments = {const_cast<char*>(program.c_str())};
  for (const std::string& a : options.arguments) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  for (const std::string& e : options.environment) putenv(const_cast<char*>(e.c_str()));
  if (options.in_child) options.in_child();
  execv(program.c_str(), arguments.data());
  _exit(127);
}

// Feeds stdin and collects both outputs until they close or time is up.
void Exchange(int pid, const ProcessOptions& options, int in, int out, int err, int seconds, ProcessResult* result) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  size_t written = 0;
  bool called = !options.while_running;
  bool out_open = true, err_open = true;
  if (options.input.empty()) close(std::exchange(in, -1));
  while (out_open || err_open) {
    if (Clock::now() > end) {
      kill(pid, SIGKILL);
      break;
    }
    pollfd fds[3] = {{out_open ? out : -1, POLLIN, 0}, {err_open ? err : -1, POLLIN, 0}, {in, POLLOUT, 0}};
    poll(fds, 3, 100);
    char buffer[65536];
    const auto drain = [&](int fd, short events, std::string* text, bool* open) {
      if ((events & (POLLIN | POLLHUP)) == 0) return;
      const ssize_t n = read(fd, buffer, sizeof buffer);
      if (n <= 0)
        *open = false;
      else
        text->append(buffer, static_cast<size_t>(n));
    };
    drain(out, fds[0].revents, &result->out, &out_open);
    drain(err, fds[1].revents, &result->err, &err_open);
    if (in >= 0 && fds[2].revents != 0) {
      const ssize_t n = write(in, options.input.data() + written, options.input.size() - written);
      if (n > 0) written += static_cast<size_t>(n);
      if (n < 0 || written == options.input.size()) close(std::exchange(in, -1));
    }
    if (!called && !(result->out.empty() && result->err.empty())) {
      called = true;
      options.while_running(pid);
    }
  }
  if (in >= 0) close(in);
}

}  // namespace

ProcessResult RunProcess(const std::string& program, const ProcessOptions& options, int seconds) {
  signal(SIGPIPE, SIG_IGN);
  Pipe in, out, err;
  for (const int fd : {in.write, out.read, err.read}) fcntl(fd, F_SETFD, FD_CLOEXEC);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(in.read, STDIN_FILENO);
    dup2(out.write, STDOUT_FILENO);
    dup2(err.write, STDERR_FILENO);
    for (const int fd : {in.read, out.write, err.write}) close(fd);
    Exec(program, options);
  }
  for (const int fd : {in.read, out.write, err.write}) close(fd);
  ProcessResult result;
  Exchange(pid, options, in.write, out.read, err.read, seconds, &result);
  close(out.read);
  close(err.read);
  int status = 0;
  waitpid(pid, &status, 0);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace deltafin::test
