// SetupView: what `deltafin setup` shows while it works and when it is done: on stderr for people, as JSON lines on
// stdout for programs.
//
// Thread-safe: notes about connections come from threads of their own.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "app/terminal.h"
#include "base/clock.h"
#include "setup/setup.h"

namespace deltafin {

class SetupView {
 public:
  SetupView(Terminal& terminal, bool json, bool quiet) : terminal_(terminal), json_(json), quiet_(quiet) {}

  void Show(const SetupProgress& p);
  // Something is tried again: at most one a few seconds is shown, the rest counted.
  void Retry(const std::string& reason);
  void Note(const std::string& text);
  void Plan(const SetupReport& report);
  void Done(const SetupReport& report, const SetupOptions& options);

 private:
  double Rate(int64_t now, uint64_t received);
  void PrintLine(const std::string& line);

  Terminal& terminal_;
  const bool json_, quiet_;
  const SteadyClock clock_;
  const int64_t begin_ = clock_.NowNs();
  std::mutex mutex_;
  int64_t last_ = 0, last_retry_ = 0;
  uint64_t retries_ = 0;
  std::string phase_;
  std::deque<std::pair<int64_t, uint64_t>> samples_;  // time and bytes received, of the last seconds
};

}  // namespace deltafin
