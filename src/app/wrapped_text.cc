#include "app/wrapped_text.h"

namespace deltafin {
namespace {

size_t Columns(std::string_view text) {
  size_t columns = 0;
  for (const char c : text) columns += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  return columns;
}

// One line, which may begin with spaces and have several between its words (a table): they stay where it is not broken.
std::string WrappedLine(std::string_view line, size_t width, size_t indent) {
  std::string out;
  size_t column = 0, at = 0;
  bool any = false;  // word in this line
  while (at < line.size()) {
    const size_t word = line.find_first_not_of(' ', at);
    if (word == std::string_view::npos) break;
    size_t end = line.find(' ', word);
    if (end == std::string_view::npos) end = line.size();
    const size_t gap = word - at, columns = Columns(line.substr(word, end - word));
    if (any && column + gap + columns > width) {
      out += '\n';
      out.append(indent, ' ');
      column = indent;
    } else {
      out.append(gap, ' ');
      column += gap;
    }
    out.append(line.substr(word, end - word));
    column += columns;
    any = true;
    at = end;
  }
  return out;
}

}  // namespace

std::string Wrapped(std::string_view text, size_t width, size_t indent) {
  if (width == 0) return std::string(text);
  std::string out;
  for (size_t begin = 0;;) {
    const size_t end = text.find('\n', begin);
    out += WrappedLine(text.substr(begin, end == std::string_view::npos ? end : end - begin), width, indent);
    if (end == std::string_view::npos) return out;
    out += '\n';
    begin = end + 1;
  }
}

}  // namespace deltafin
