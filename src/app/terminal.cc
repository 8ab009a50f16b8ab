#include "app/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "app/wrapped_text.h"

namespace deltafin {
namespace {

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

std::string Dim(std::string_view text) {
  std::string dim = "\033[2m";
  dim += text;
  dim += "\033[0m";
  return dim;
}

int TerminalWidth() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

int TerminalRows() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

std::string MoveTo(int row) { return "\033[" + std::to_string(row) + ";1H"; }

constexpr size_t kIndent = 4;      // of the rest of a note that is wrapped
constexpr int kRowsForAnswer = 4;  // that a panel leaves at least
// Around moves of the cursor that the answer must not notice.
constexpr char kSaveCursor[] = "\0337";
constexpr char kRestoreCursor[] = "\0338";

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) {
      char code[8];
      std::snprintf(code, sizeof code, "\\x%02x", byte);
      out += code;
    } else {
      out += c;
    }
  }
  return out;
}

Terminal::Terminal()
    : stdout_is_terminal_(isatty(STDOUT_FILENO) != 0), stderr_is_terminal_(isatty(STDERR_FILENO) != 0) {}

// Columns are counted by lead bytes, wide scripts (three- and four-byte sequences from U+1100 up) as two: close enough
// to keep a status inside its line.
void Terminal::Advance(std::string_view text) {
  const int64_t width = TerminalWidth();
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == '\n' || byte == '\r')
      column_ = 0;
    else if (byte == '\t')
      column_ = (column_ / 8 + 1) * 8;
    else if ((byte & 0xc0) != 0x80)
      column_ += byte >= 0xe1 ? 2 : 1;
    if (column_ >= width) column_ -= width;
  }
}

bool Terminal::Write(std::string_view text) {
  const std::lock_guard lock(mutex_);
  EraseStatus();
  if (!stdout_is_terminal_) return WriteStdout(text);
  const std::string shown = Printable(text);
  Advance(shown);
  return WriteStdout(shown);
}

bool Terminal::WriteStdout(std::string_view text) {
  if (WriteAll(STDOUT_FILENO, text)) return true;
  if (stdout_error_ == 0) stdout_error_ = errno;
  return false;
}

Status Terminal::StdoutStatus() const {
  if (stdout_error_ == 0 || stdout_error_ == EPIPE) return {};
  return Fail(ErrorCode::kIo, "stdout: the answer could not be written: ", std::strerror(stdout_error_));
}

void Terminal::WriteNote(std::string_view text) {
  const std::lock_guard lock(mutex_);
  EraseStatus();
  if (!stderr_is_terminal_) {
    (void)WriteAll(STDERR_FILENO, text);
    return;
  }
  const auto width = static_cast<size_t>(std::max(TerminalWidth() - 1, 1));
  const std::string shown = Wrapped(text, width, std::min(kIndent, width / 2));
  Advance(shown);
  (void)WriteAll(STDERR_FILENO, shown);
}

void Terminal::WriteDim(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (!stderr_is_terminal_) return;
  EraseStatus();
  const std::string shown = Printable(text);
  Advance(shown);
  (void)WriteAll(STDERR_FILENO, Dim(shown));
}

void Terminal::EraseStatus() {
  if (status_width_ == 0) return;
  char back[32];
  const int n = std::snprintf(back, sizeof back, "\033[%zuD\033[K", status_width_);
  (void)WriteAll(STDERR_FILENO, {back, static_cast<size_t>(n)});
  status_width_ = 0;
}

void Terminal::ShowStatus(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!stderr_is_terminal_) {
    (void)WriteAll(STDERR_FILENO, text + "\n");
    return;
  }
  EraseStatus();
  // The last column stays free: a cursor behind it would wrap.
  const int64_t room = TerminalWidth() - 1 - column_ - 1;
  if (room < 6) return;
  std::string shown;
  if (column_ > 0) shown += ' ';
  shown.append(text, 0, static_cast<size_t>(room));
  (void)WriteAll(STDERR_FILENO, Dim(shown));
  status_width_ = shown.size();
}

void Terminal::ClearStatus() {
  const std::lock_guard lock(mutex_);
  EraseStatus();
}

int Terminal::Width() { return TerminalWidth(); }

void Terminal::ShowPanel(const std::vector<std::string>& lines) {
  const std::lock_guard lock(mutex_);
  if (!stderr_is_terminal_ || lines.empty()) return;
  EraseStatus();
  const int rows = static_cast<int>(lines.size());
  const int terminal_rows = TerminalRows();
  if (panel_rows_ != rows || terminal_rows_ != terminal_rows) {
    ClosePanelRows();
    if (terminal_rows < rows + kRowsForAnswer) return;
    OpenPanelRows(rows, terminal_rows);
  }
  std::string out = kSaveCursor;
  for (int i = 0; i < rows; ++i)
    out.append(MoveTo(terminal_rows - rows + i + 1))
        .append("\033[2K")
        .append(Dim(Printable(lines[static_cast<size_t>(i)])));
  (void)WriteAll(STDERR_FILENO, out.append(kRestoreCursor));
}

void Terminal::ClosePanel() {
  const std::lock_guard lock(mutex_);
  EraseStatus();
  ClosePanelRows();
}

// Index (ESC D) moves down without changing the column and scrolls at the bottom, so that a half-written line of the
// answer stays where it is. Setting the scroll region moves the cursor, hence the saving.
void Terminal::OpenPanelRows(int rows, int terminal_rows) {
  std::string out;
  for (int i = 0; i < rows; ++i) out += "\033D";
  out.append("\033[").append(std::to_string(rows)).append("A").append(kSaveCursor);
  out.append("\033[1;").append(std::to_string(terminal_rows - rows)).append("r").append(kRestoreCursor);
  (void)WriteAll(STDERR_FILENO, out);
  panel_rows_ = rows;
  terminal_rows_ = terminal_rows;
}

// The panel is all that is below the cursor, also after the terminal changed its size.
void Terminal::ClosePanelRows() {
  if (panel_rows_ == 0) return;
  (void)WriteAll(STDERR_FILENO, Cat(kSaveCursor, "\033[r", kRestoreCursor, "\033[J"));
  panel_rows_ = 0;
}

void Terminal::EndLine() {
  const std::lock_guard lock(mutex_);
  EraseStatus();
  if (column_ == 0) return;
  (void)WriteAll(stdout_is_terminal_ ? STDOUT_FILENO : STDERR_FILENO, "\n");
  column_ = 0;
}

}  // namespace deltafin
