#include "app/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

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

int64_t TerminalWidth() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

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
  if (stderr_is_terminal_) Advance(text);
  (void)WriteAll(STDERR_FILENO, text);
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

void Terminal::EndLine() {
  const std::lock_guard lock(mutex_);
  EraseStatus();
  if (column_ == 0) return;
  (void)WriteAll(stdout_is_terminal_ ? STDOUT_FILENO : STDERR_FILENO, "\n");
  column_ = 0;
}

}  // namespace deltafin
