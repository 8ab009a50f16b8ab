// byte_level_file.h: a tokenizer.json with byte-level byte-pair encoding, as Qwen's checkpoints have it, as a pure
// function on its bytes.
//
// Read is what decides about ids: vocabulary, merges, added tokens. What would change ids and is not what the release
// has (another pattern, normal form or model, dropout, truncation) is refused by name, so nothing is guessed. Bytes may
// be hostile; memory is a small multiple of the file, nothing recurses. Errors: kCorrupt (not such a file, contradicts
// itself), kUnsupported (another kind of tokenizer).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace deltafin {

struct ByteLevelMerge {
  TokenId left = 0, right = 0, joined = 0;
};

struct ByteLevelParts {
  std::vector<std::string> tokens;     // by id: the bytes; every single byte is among them
  std::vector<ByteLevelMerge> merges;  // the first applies before the others
  std::vector<TokenId> added;          // ids above those, for what no text gives; ascending
};

// `what` names the document in errors.
Result<ByteLevelParts> ParseByteLevelFile(std::string_view json, const std::string& what);

}  // namespace deltafin
