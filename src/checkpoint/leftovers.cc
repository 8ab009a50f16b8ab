#include "checkpoint/leftovers.h"

#include <signal.h>

#include <cerrno>
#include <charconv>
#include <filesystem>

#include "checkpoint/atomic_file.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

// Whether `name` is what AtomicFile left behind for one of the files that begin with `start` when its process died.
bool IsLeftover(std::string_view name, std::string_view start) {
  const size_t at = name.rfind(kPartMark);
  if (!name.starts_with(start) || at == std::string_view::npos) return false;
  const std::string_view digits = name.substr(at + kPartMark.size());
  pid_t process = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), process);
  if (error != std::errc() || end != digits.data() + digits.size() || process <= 0) return false;
  return kill(process, 0) != 0 && errno == ESRCH;
}

}  // namespace

void RemoveLeftovers(const std::string& folder, std::string_view start) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (IsLeftover(it->path().filename().string(), start)) fs::remove(it->path(), ignored);
  }
}

}  // namespace deltafin
