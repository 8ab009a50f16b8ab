#include "base/model_file.h"

#include <algorithm>

#include "base/json.h"

namespace deltafin {

Result<std::string> ReadModelFile(const std::string& path, uint64_t max_bytes) {
  Result<std::string> text = ReadWholeFile(path, max_bytes);
  if (text && IsLfsPointer(*text)) return LfsPointerError(path);
  if (text || text.error().code() != ErrorCode::kInvalidArgument) return text;
  // Whoever names a model means its files: one of the wrong kind is a fault of the model.
  return Fail(ErrorCode::kCorrupt, text.error().message());
}

bool IsLfsPointer(std::string_view first_bytes) {
  constexpr std::string_view kStart = "version https://git-lfs";
  const size_t compared = std::min(kStart.size(), first_bytes.size());
  return compared >= 8 && first_bytes.substr(0, compared) == kStart.substr(0, compared);
}

Failure LfsPointerError(const std::string& what) {
  return Fail(ErrorCode::kCorrupt, what,
              ": expected the file itself, got a git-lfs pointer to it: fetch the contents with 'git lfs pull' in that "
              "folder, or download the file again");
}

}  // namespace deltafin
