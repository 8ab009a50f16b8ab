#include "base/json.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"

namespace deltafin {
namespace {

constexpr int kMaxDepth = 128;

// nlohmann's parser recurses when a value is destroyed, so depth is bounded before it sees the text.
bool TooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<Json> ParseJson(std::string_view text, std::string_view what) {
  if (TooDeep(text)) return Fail(ErrorCode::kCorrupt, what, ": nested deeper than ", kMaxDepth, " levels");
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    return Fail(ErrorCode::kCorrupt, what, ": not valid JSON: ", e.what());
  }
}

Result<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    const ErrorCode code = errno == ENOENT || errno == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo;
    return Fail(code, path, ": ", std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return Fail(ErrorCode::kInvalidArgument, path, ": expected a regular file, got something else");
  if (static_cast<uint64_t>(info.st_size) > max_bytes)
    return Fail(ErrorCode::kCorrupt, path, ": expected at most ", FormatBytes(max_bytes), ", got ",
                FormatBytes(static_cast<uint64_t>(info.st_size)));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return Fail(ErrorCode::kIo, path, ": ", std::strerror(errno));
  std::string text(static_cast<size_t>(info.st_size), '\0');
  const size_t got = std::fread(text.data(), 1, text.size(), file.get());
  if (got != text.size()) return Fail(ErrorCode::kIo, path, ": expected ", text.size(), " bytes, could read ", got);
  return text;
}

Result<Json> ReadJsonFile(const std::string& path, uint64_t max_bytes) {
  DFIN_TRY(const std::string text, ReadWholeFile(path, max_bytes));
  return ParseJson(text, path);
}

std::string DumpJson(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace deltafin
