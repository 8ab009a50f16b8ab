// child_process: runs another program and hands on its output line by line, with something to do at regular times.
//
// The program gets an empty stdin and a process group of its own, so that Ctrl-C reaches it only through the caller's
// CancelToken: it is asked to end (SIGTERM), and killed if it does not. Nothing of it is left when the call returns.
// Callbacks run on the calling thread. Errors: kIo (it cannot be started, a line is longer than kMostLineBytes).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"

namespace deltafin {

struct ChildOptions {
  static constexpr size_t kMostLineBytes = size_t{64} << 20;

  std::string program;                                                 // path
  std::vector<std::string> arguments;                                  // without the program's name
  std::function<void(std::string_view line, double seconds)> on_line;  // of stdout, without its end; since the start
  std::function<void(double seconds)> on_tick;                         // about every tick_seconds, and at the end
  double tick_seconds = 0.02;
  CancelToken cancel;
  double grace_seconds = 20;  // between asking and killing
};

struct ChildExit {
  int code = -1;   // exit status; -1: ended by a signal
  int signal = 0;  // 0: none
  bool cancelled = false;
  double seconds = 0, processor_seconds = 0;
  std::string errors;  // the end of what it wrote to stderr

  bool good() const { return code == 0; }
};

Result<ChildExit> RunChild(const ChildOptions& options);

}  // namespace deltafin
