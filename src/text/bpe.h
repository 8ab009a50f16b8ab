// bpe.h: byte-pair merging of one piece of text.
//
// Starting from single bytes, the adjacent pair whose joined bytes are the token of lowest rank is merged, the leftmost
// on equal rank, until no adjacent pair joins to a token. O(n log n) for n bytes; a piece may have 100,000. Pure
// function.
#pragma once

#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/token_table.h"

namespace deltafin {

// Appends the ranks of `piece`. `ranks` must hold all 256 single bytes.
void AppendBytePairs(const TokenTable& ranks, std::string_view piece, std::vector<TokenId>* ids);

}  // namespace deltafin
