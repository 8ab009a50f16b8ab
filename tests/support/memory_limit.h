// memory_limit.h: a hard memory limit around a child process: a cgroup where one can be made, else an address-space
// limit.
//
// A cgroup counts resident memory, which is what a plan promises; the address-space limit also counts what is only
// reserved, so it gets an allowance on top. Thread rule: main thread of a test.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace deltafin::test {

class MemoryLimit {
 public:
  explicit MemoryLimit(uint64_t bytes);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

  // For ProcessOptions::in_child.
  std::function<void()> Enter() const;
  // "cgroup" or "RLIMIT_AS".
  std::string kind() const { return folder_.empty() ? "RLIMIT_AS" : "cgroup"; }

 private:
  uint64_t bytes_;
  std::string folder_;  // of the cgroup; "" without one
};

}  // namespace deltafin::test
