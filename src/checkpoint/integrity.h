// integrity: XXH3 hashes of bytes, for naming and for noticing damage; not against an attacker. The only includer of
// xxhash.
//
// Pure functions. Values are stable across machines and may be stored.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/bytes.h"

namespace deltafin {

uint64_t Hash64(Bytes data, uint64_t seed = 0);
uint64_t Hash64(std::string_view text, uint64_t seed = 0);

}  // namespace deltafin
