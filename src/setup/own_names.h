// own_names: which files of a repository are never written, since their names are deltafin's own or hidden.
//
// A repository must not be able to put a journal, a manifest or a map of what was fetched into a folder. Whatever the
// case of the letters: some file systems take both for the same. A pure function.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "checkpoint/stream_manifest.h"

namespace deltafin {

inline bool IsHiddenName(std::string_view path) {
  return path.starts_with('.') || path.find("/.") != std::string_view::npos;
}

// The file's own name begins with "deltafin-", or the path with "partial".
inline bool IsOwnName(std::string_view path) {
  std::string lower(path);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return std::string_view(lower).substr(lower.rfind('/') + 1).starts_with("deltafin-") ||
         lower.substr(0, lower.find('/')) == kPartialFolder;
}

}  // namespace deltafin
