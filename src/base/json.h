// json.h: small JSON documents (configuration, API bodies, events). The only header that names nlohmann's type.
//
// Json is nlohmann::ordered_json: members keep their order, which matters when tool schemas enter a prompt. That
// library throws; ParseJson and the accessors below do not. Headers with hundreds of thousands of tensors are read by
// checkpoint/safetensors.h instead.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace deltafin {

using Json = nlohmann::ordered_json;

// `what` names the document in errors ("config.json"). Nesting deeper than 128 levels is refused.
Result<Json> ParseJson(std::string_view text, std::string_view what);

// Whole file, refused above `max_bytes`. kNotFound, kIo, kCorrupt; kInvalidArgument when it is not a regular file (it
// is not opened then: a pipe would block).
Result<Json> ReadJsonFile(const std::string& path, uint64_t max_bytes = 64u << 20);
Result<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes);

// One line, members in order, invalid UTF-8 replaced by U+FFFD.
std::string DumpJson(const Json& value);

}  // namespace deltafin
