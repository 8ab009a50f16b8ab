#include "base/log.h"

#include <cstdio>

namespace deltafin {

Logger::Logger()
    : sink_([](const std::string& message) { std::fprintf(stderr, "deltafin: warning: %s\n", message.c_str()); }) {}

void Logger::Warn(const std::string& message) {
  const std::lock_guard lock(mutex_);
  sink_(message);
}

void Logger::WarnOnce(const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (seen_.insert(message).second) sink_(message);
}

}  // namespace deltafin
