// LineReader: one line after another from stdin; on a terminal with editing and recall of earlier lines (libedit).
//
// Waits in short steps, so that a signal ends the wait on any system. Not a parser: the line comes back as typed,
// without its newline. line_reader.cc is the only includer of histedit.h. Thread rule: main thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/cancel.h"

namespace deltafin {

class LineReader {
 public:
  enum class Outcome : uint8_t { kLine, kEnd, kInterrupted, kTooLong };
  static constexpr size_t kMaxBytes = size_t{1} << 20;  // of a line; the rest of a longer one is skipped

  // `interrupt`: cancelled by Ctrl-C and SIGTERM.
  LineReader(const std::string& prompt, CancelToken interrupt);
  ~LineReader();

  // kEnd at end of input (Ctrl-D), kInterrupted when the token is cancelled; `line` is set for kLine only.
  Outcome Read(std::string* line);

 private:
  struct Input;
  struct Editor;
  Outcome ReadPlain(std::string* line);

  std::unique_ptr<Input> input_;
  std::unique_ptr<Editor> editor_;  // null when stdin is not a terminal
};

}  // namespace deltafin
