// token_json.h: tokens and their scores as the APIs write them, and the check of `model`.
//
// A token's text is what its bytes read as; bytes that are no whole characters are U+FFFD there, and exact in "bytes".
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "server/answer_feed.h"
#include "server/request_fields.h"
#include "server/server_context.h"
#include "text/tokenizer.h"

namespace deltafin {

// The list at choices[].logprobs.content of chat completions.
std::string ScoresJson(const Tokenizer& tokenizer, const std::vector<ScoredToken>& tokens);
// A score as JSON: what is less likely than anything has a finite number too.
std::string LogprobText(double logprob);

// `model`: the name of the one model there is, or nothing.
void CheckModel(RequestFields& fields, const ServerContext& context);

}  // namespace deltafin
