// page.h: the files of the page at "/", embedded in the program (src/server/page/).
//
// Constant data; any thread.
#pragma once

#include <span>
#include <string_view>

namespace deltafin {

struct PageFile {
  std::string_view path, content_type, text;
};

std::span<const PageFile> PageFiles();

}  // namespace deltafin
