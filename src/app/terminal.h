// Terminal: the answer on stdout and one status text on stderr, kept out of each other's way.
//
// On a terminal the status is a short text after the cursor that disappears before the next piece of the answer is
// written; it never wraps. Where stderr is not a terminal a status is a whole line. A panel (run --watch) takes the
// bottom rows for itself and lets the answer scroll above. Thread-safe: the engine thread
// writes the answer, the progress thread the status.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deltafin {

// `text` with control characters (but newline and tab) written as \xNN: names and messages may come from files that
// mean no good.
std::string Printable(std::string_view text);

class Terminal {
 public:
  Terminal();
  ~Terminal() { ClosePanel(); }

  bool stderr_is_terminal() const { return stderr_is_terminal_; }
  bool stdout_is_terminal() const { return stdout_is_terminal_; }

  // To stdout, at once; on a terminal control characters are made visible. False when stdout is gone.
  bool Write(std::string_view text);
  // kIo when a write to stdout failed for another reason than a reader that had enough.
  Status StdoutStatus() const;
  // To stderr: whole lines, or (dimmed, on a terminal only) the model's thoughts as they come.
  void WriteNote(std::string_view text);
  void WriteDim(std::string_view text);
  // `text` is plain ASCII; cut to what fits in the line.
  void ShowStatus(const std::string& text);
  void ClearStatus();
  // `lines` (plain text) in the bottom rows of the terminal on stderr, replacing those shown before; nothing where the
  // terminal has not at least four rows more. Follows changes of the terminal's size.
  void ShowPanel(const std::vector<std::string>& lines);
  // Gives the rows back.
  void ClosePanel();
  // Columns of the terminal on stderr.
  static int Width();
  // A new line if the cursor is not at the start of one.
  void EndLine();

 private:
  bool WriteStdout(std::string_view text);
  void EraseStatus();
  void OpenPanelRows(int rows, int terminal_rows);
  void ClosePanelRows();
  void Advance(std::string_view text);

  std::mutex mutex_;
  bool stdout_is_terminal_;
  bool stderr_is_terminal_;
  int stdout_error_ = 0;     // errno of the first write that failed
  int64_t column_ = 0;       // of the cursor, counted over what both streams wrote to the terminal
  size_t status_width_ = 0;  // columns that the shown status takes
  int panel_rows_ = 0;       // 0: no panel
  int terminal_rows_ = 0;    // when the panel was opened
};

}  // namespace deltafin
