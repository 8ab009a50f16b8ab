// process.h: runs a program and keeps what it wrote. For tests of the command line.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace deltafin::test {

struct ProcessResult {
  int exit_code = -1;  // 128 + n for signal n
  std::string out, err;
};

struct ProcessOptions {
  std::vector<std::string> arguments;
  std::string input;                           // to stdin
  std::vector<std::string> environment;        // "NAME=value", added
  std::function<void()> in_child;              // after fork, before exec: limits and the like
  std::function<void(int pid)> while_running;  // on the calling thread, once the program writes something or ends
};

// Waits at most `seconds`, then kills it (exit code 137).
ProcessResult RunProcess(const std::string& program, const ProcessOptions& options, int seconds = 120);

}  // namespace deltafin::test
