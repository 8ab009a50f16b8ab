// Interrupt: Ctrl-C and SIGTERM as a CancelToken.
//
// While one exists, the first signal cancels the token; the `end_after`-th before Reset() ends the process at once with
// 130 (for a drive that hangs). One at a time. Thread-safe.
#pragma once

#include "base/cancel.h"

namespace deltafin {

class Interrupt {
 public:
  explicit Interrupt(int end_after = 2);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  CancelToken token() const { return source_.token(); }
  bool happened() const { return source_.token().cancelled(); }
  // SIGTERM asks for the end of the program; Ctrl-C in a chat only for the end of the answer.
  bool terminate() const;
  void Reset();

 private:
  CancelSource source_;
};

}  // namespace deltafin
