// log.h: warnings for the user, on stderr, one line each. Not for progress and not for answers.
//
// A Logger is passed to what may warn; there is no global one. Thread-safe.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <string>

namespace deltafin {

class Logger {
 public:
  // `sink` gets whole lines without a newline. The default writes "deltafin: warning: ..." to stderr.
  Logger();
  explicit Logger(std::function<void(const std::string&)> sink) : sink_(std::move(sink)) {}

  void Warn(const std::string& message);
  // The same text only once per logger.
  void WarnOnce(const std::string& message);

 private:
  std::mutex mutex_;
  std::function<void(const std::string&)> sink_;
  std::set<std::string> seen_;
};

}  // namespace deltafin
