// pretokenizer.h: cuts text into the pieces that byte-pair merging never crosses.
//
// Two independent cuts, both as Kimi K3's tokenizer makes them. SplitParts: the length limits (a slice of so many code
// points, a run of so many spaces or non-spaces); special spellings are looked for inside a part. SplitPieces: the
// pattern's eight alternatives, as a linear scanner instead of a regular expression.
// Every byte of the text lands in exactly one piece, in order; an ill-formed byte is a character of no class. Linear
// time. Pure functions; results are views into the text.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace deltafin {

struct SplitLimits {
  size_t max_run = 25'000;     // characters of the same class, space or not space
  size_t max_slice = 400'000;  // characters
};

std::vector<std::string_view> SplitParts(std::string_view text, const SplitLimits& limits);

// `stretch` is a part, or what lies between two special tokens of one: "end of text" means its end.
std::vector<std::string_view> SplitPieces(std::string_view stretch);

}  // namespace deltafin
