// file_check: whether a file on disk has the checksum that the hub lists.
//
// Reads files whole, in order, without filling the page cache. Functions without state; thread-safe. Errors: kCorrupt
// (naming file, expected and got), kIo, kCancelled.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/bytes.h"
#include "base/cancel.h"
#include "base/result.h"
#include "pack/model_file_check.h"
#include "setup/hub_listing.h"

namespace deltafin {

// Size and checksum of `file`.
Status CheckFile(const std::string& path, const HubFile& file, const std::function<void()>& tick, CancelToken cancel);
Status CheckBytes(Bytes bytes, const HubFile& file);
// kCorrupt when the file has not `size` bytes.
Result<std::string> Sha256OfFile(const std::string& path, uint64_t size, const std::function<void()>& tick,
                                 CancelToken cancel);

}  // namespace deltafin
