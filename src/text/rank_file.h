// rank_file.h: the vocabulary file tiktoken.model, as a pure function on its bytes.
//
// One token per line: base64 of the token's bytes, a space, its rank in decimal. CRLF, empty lines and a missing final
// line break are accepted. Refused with kCorrupt and the line number: bad base64, an empty or repeated token, a
// repeated or missing rank, a missing single byte.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deltafin {

// The tokens, index = rank.
Result<std::vector<std::string>> ParseRankFile(std::string_view file);

}  // namespace deltafin
