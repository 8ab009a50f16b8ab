// bench_prompts: the texts that bench run asks the model to go on with, written for this project.
//
// Fixed: a changed text is another benchmark, and results say the SHA-256 of the ids. "long" is cut to exactly
// kLongPromptTokens tokens of the model's tokenizer. A folder without tokenizer files gets made-up ids instead. Pure
// functions of what they are given. Errors: kInvalidArgument.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "bench/bench_result.h"
#include "text/tokenizer.h"

namespace deltafin {

inline constexpr size_t kLongPromptTokens = 512;

struct PromptChoice {
  std::vector<std::string> names;  // of built-in ones; "long" among them gives one token only
  std::vector<std::string> files;  // texts of the user, named by their file
  std::vector<int64_t> lengths;    // new tokens
};
std::vector<std::string> BuiltInPromptNames();

// `tokenizer` null: ids are made up (without the last quarter of `vocab_size`, where special ids are); files are
// refused.
Result<std::vector<BenchPrompt>> MakeBenchPrompts(const PromptChoice& choice, const Tokenizer* tokenizer,
                                                  int64_t vocab_size);

}  // namespace deltafin
