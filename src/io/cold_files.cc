#include "io/cold_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "io/page_cache.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kWindowBytes = uint64_t{1} << 30;  // asked about at once

uint64_t CachedOf(const DirectFile& file) {
  uint64_t cached = 0;
  for (uint64_t at = 0; at < file.size(); at += kWindowBytes)
    cached += CachedBytes(file, at, std::min(kWindowBytes, file.size() - at));
  return cached;
}

}  // namespace

Result<ForgottenFiles> ForgetFiles(const std::vector<std::string>& folders) {
  ForgottenFiles out;
  std::set<std::string> seen;
  for (const std::string& folder : folders) {
    std::error_code failed;
    const fs::directory_iterator entries(folder, failed);
    if (failed)
      return Fail(failed == std::errc::no_such_file_or_directory ? ErrorCode::kNotFound : ErrorCode::kIo, folder,
                  ": the folder cannot be read: ", failed.message());
    for (const fs::directory_entry& entry : entries) {
      if (!entry.is_regular_file(failed)) continue;  // links to files count
      const std::string path = fs::canonical(entry.path(), failed).string();
      if (failed || !seen.insert(path).second) continue;
      const Result<DirectFile> file = DirectFile::OpenBuffered(path);
      if (!file) continue;  // whoever needs it will say so
      ForgetPages(*file, 0, file->size());
      ++out.files;
      out.bytes += file->size();
      out.still_cached += CachedOf(*file);
    }
  }
  return out;
}

Status DropAllCaches() {
  constexpr const char* kFile = "/proc/sys/vm/drop_caches";
  std::ofstream out(kFile);
  out << "3\n";
  out.close();
  if (!out)
    return Fail(ErrorCode::kUnavailable, kFile, ": cannot be written: expected to run as root on Linux, got refused: ",
                "leave --drop-caches out, then only the model's own files are forgotten");
  return {};
}

}  // namespace deltafin
