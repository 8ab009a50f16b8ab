// Terminal: the answer on stdout and one status text on stderr, kept out of each other's way.
//
// On a terminal the status is a short text after the cursor that disappears before the next piece of the answer is
// written; it never wraps. Where stderr is not a terminal a status is a whole line. Thread-safe: the engine thread
// writes the answer, the progress thread the status.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace deltafin {

class Terminal {
 public:
  Terminal();
  ~Terminal() { ClearStatus(); }

  bool stderr_is_terminal() const { return stderr_is_terminal_; }
  bool stdout_is_terminal() const { return stdout_is_terminal_; }

  // To stdout, at once. False when stdout is gone.
  bool Write(std::string_view text);
  // To stderr: whole lines, or (dimmed, on a terminal only) the model's thoughts as they come.
  void WriteNote(std::string_view text);
  void WriteDim(std::string_view text);
  // `text` is plain ASCII; cut to what fits in the line.
  void ShowStatus(const std::string& text);
  void ClearStatus();
  // A new line if the cursor is not at the start of one.
  void EndLine();

 private:
  void EraseStatus();
  void Advance(std::string_view text);

  std::mutex mutex_;
  bool stdout_is_terminal_;
  bool stderr_is_terminal_;
  int64_t column_ = 0;       // of the cursor, counted over what both streams wrote to the terminal
  size_t status_width_ = 0;  // columns that the shown status takes
};

}  // namespace deltafin
