// tokenizer_files.h: what a model folder says about its tokenizer.
//
// Reads tiktoken.model, tokenizer_config.json (added_tokens_decoder), config.json (vocab_size, eos_token_id,
// media_placeholder_token_id; also inside text_config) and generation_config.json (eos_token_id) where it exists. The
// parts are checked against each other by Tokenizer::Create. The ...From functions are pure. Errors: kNotFound, kIo,
// kCorrupt (a git-lfs pointer instead of the file included); each message names the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/python_json.h"
#include "text/tokenizer.h"

namespace deltafin {

Result<TokenizerParts> ReadTokenizerFiles(const std::string& folder);

// added_tokens_decoder of tokenizer_config.json.
Result<std::vector<SpecialToken>> SpecialTokensFrom(const PythonJson& tokenizer_config);

// eos_token_id, a number or a list of numbers; empty if there is none.
Result<std::vector<TokenId>> EosIdsFrom(const PythonJson& config);

}  // namespace deltafin
