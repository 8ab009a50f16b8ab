// LineReader: one line after another from stdin; on a terminal with editing and recall of earlier lines (libedit).
//
// line_reader.cc is the only includer of histedit.h. Thread rule: main thread. Not a parser: the line comes back as
// typed, without its newline.
#pragma once

#include <memory>
#include <string>

namespace deltafin {

class LineReader {
 public:
  enum class Outcome : uint8_t { kLine, kEnd, kInterrupted };

  explicit LineReader(const std::string& prompt);
  ~LineReader();

  // kEnd at end of input (Ctrl-D), kInterrupted when a signal came in (Ctrl-C); `line` is set for kLine only.
  Outcome Read(std::string* line);

 private:
  struct Editor;
  std::unique_ptr<Editor> editor_;  // null when stdin is not a terminal
};

}  // namespace deltafin
