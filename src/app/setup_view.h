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
#include "base/json.h"
#include "setup/setup.h"

namespace deltafin {

class SetupView {
 public:
  SetupView(Terminal& terminal, bool json, bool quiet) : terminal_(terminal), json_(json), quiet_(quiet) {}

  void Show(const SetupProgress& p);
  // Something is tried again: one is shown after 10 s, the next after twice as long each time, the rest is counted.
  void Retry(const std::string& reason);
  // With it: attempts in a row that brought nothing, of how many.
  void Waiting(int attempts, int most);
  void Note(const std::string& text);
  void Plan(const SetupReport& report);
  void Done(const SetupReport& report, const SetupOptions& options);
  // The last event, to which seconds and retries are added, or the text.
  void Done(Json event, const std::string& text);

 private:
  double Rate(int64_t now, uint64_t received);
  std::string WaitText(int64_t now) const;
  void ShowLine(const SetupProgress& p, int64_t now, double rate, uint64_t left);
  void PrintLine(const std::string& line);

  Terminal& terminal_;
  const bool json_, quiet_;
  const SteadyClock clock_;
  const int64_t begin_ = clock_.NowNs();
  std::mutex mutex_;
  int64_t last_ = 0, last_retry_ = 0, retry_pause_ = 0;
  uint64_t received_ = 0;                 // as last told
  int64_t received_ns_ = 0;               // when that was another number last
  int attempts_ = 0, most_attempts_ = 0;  // the last ones that brought nothing
  uint64_t retries_ = 0;
  std::deque<std::pair<int64_t, uint64_t>> samples_;  // time and bytes received, of the last seconds
};

}  // namespace deltafin
