// model_file_check: whether a file on disk has a checksum that somebody lists, and what its checksum is.
//
// Reads files whole, in order, without filling the page cache. Functions without state; thread-safe. Errors: kCorrupt
// (naming file, expected and got), kNotFound, kIo, kCancelled.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/cancel.h"
#include "base/digest.h"
#include "base/result.h"
#include "checkpoint/model_files.h"

namespace deltafin {

// Files are read in such pieces; `tick` is called after each.
inline constexpr uint64_t kCheckPieceBytes = uint64_t{4} << 20;

// Size and checksum of `expected`, whose name does not matter, of the file at `path`.
Status CheckModelFile(const std::string& path, const ModelFile& expected, const std::function<void()>& tick,
                      CancelToken cancel);
// kCorrupt when the file has not `bytes` bytes.
Result<std::string> DigestOfFile(const std::string& path, uint64_t bytes, Digest digest,
                                 const std::function<void()>& tick, CancelToken cancel);

}  // namespace deltafin
