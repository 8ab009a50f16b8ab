#include "checkpoint/integrity.h"

#include <xxhash.h>

namespace deltafin {

uint64_t Hash64(Bytes data, uint64_t seed) { return XXH3_64bits_withSeed(data.data(), data.size(), seed); }

uint64_t Hash64(std::string_view text, uint64_t seed) { return XXH3_64bits_withSeed(text.data(), text.size(), seed); }

}  // namespace deltafin
