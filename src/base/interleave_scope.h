// InterleaveScope: while it lives, memory that this thread is the first to touch is spread page by page over several
// memory nodes, and so it is, for good, by the threads that it starts meanwhile.
//
// For the large blocks that all workers read (dense weights, expert slots): with the default policy they would lie on
// the node of the thread that reads them from the drives, and the other nodes' channels would idle. With fewer than two
// nodes it does nothing. A policy that somebody chose for this process (numactl) is kept. interleave_scope_linux.cc or
// _basic.cc is linked. Thread rule: made and destroyed on one thread.
#pragma once

#include <span>
#include <string>

#include "base/result.h"

namespace deltafin {

class InterleaveScope {
 public:
  explicit InterleaveScope(std::span<const int> nodes);
  ~InterleaveScope();
  InterleaveScope(const InterleaveScope&) = delete;
  InterleaveScope& operator=(const InterleaveScope&) = delete;

  // "2 nodes, interleaved"; "2 nodes, not interleaved"; "2 nodes, memory policy of the caller"; "" with one node.
  const std::string& description() const { return description_; }
  // Why the system refused.
  const Status& status() const { return status_; }

 private:
  std::string description_;
  Status status_;
  bool active_ = false;
};

}  // namespace deltafin
