// model_file: a whole small file of a model's folder (JSON, token ranks), and the one way to notice git-lfs pointers.
//
// Functions without state; thread-safe. Never blocks on pipes and devices. Errors name the path: kNotFound, kIo,
// kCorrupt (not a regular file, too large, or a git-lfs pointer instead of the contents).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace deltafin {

Result<std::string> ReadModelFile(const std::string& path, uint64_t max_bytes);

// Git keeps large files outside the repository and leaves such a pointer in their place. At least 8 bytes decide.
bool IsLfsPointer(std::string_view first_bytes);
// The error for it, with advice.
Failure LfsPointerError(const std::string& what);

}  // namespace deltafin
