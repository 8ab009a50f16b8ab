#include "app/progress_line.h"

#include <string_view>

namespace deltafin {
namespace {

constexpr std::string_view kGap = "  ";
constexpr std::string_view kCut = "...";
constexpr size_t kLeastOfName = 8;

}  // namespace

std::string ProgressLine(const std::vector<std::string>& parts, const std::string& doing, const std::string& name,
                         size_t width) {
  std::string line;
  const auto fits = [&](size_t more) { return line.size() + (line.empty() ? 0 : kGap.size()) + more <= width; };
  const auto add = [&](const std::string& text) { line += (line.empty() ? "" : std::string(kGap)) + text; };
  for (const std::string& part : parts) {
    if (!fits(part.size())) break;
    add(part);
  }
  if (doing.empty() || !fits(doing.size())) return line;
  add(doing);
  if (name.empty() || line.size() + 1 >= width) return line;
  const size_t room = width - line.size() - 1;
  if (name.size() <= room) return line + " " + name;
  if (room < kCut.size() + kLeastOfName) return line;
  return line + " " + std::string(kCut) + name.substr(name.size() - (room - kCut.size()));
}

}  // namespace deltafin
