#include "server/token_json.h"

#include <algorithm>
#include <cmath>

#include "server/json_text.h"
#include "text/utf8.h"

namespace deltafin {
namespace {

constexpr double kLeastLogprob = -9999;

std::string OneScore(const Tokenizer& tokenizer, TokenId id, double logprob) {
  const std::string_view bytes = tokenizer.BytesOf(id);
  std::string list;
  for (const char c : bytes) list += Cat(list.empty() ? "" : ", ", static_cast<int>(static_cast<unsigned char>(c)));
  return Cat("\"token\": ", JsonString(ToValidUtf8(bytes)), ", \"logprob\": ", LogprobText(logprob), ", \"bytes\": [",
             list, "]");
}

}  // namespace

std::string LogprobText(double logprob) {
  return PythonFloatText(std::isfinite(logprob) ? std::max(logprob, kLeastLogprob) : kLeastLogprob);
}

std::string ScoresJson(const Tokenizer& tokenizer, const std::vector<ScoredToken>& tokens) {
  std::string out = "[";
  for (const ScoredToken& token : tokens) {
    if (out.size() > 1) out += ", ";
    std::string top;
    for (const TokenScore& score : token.scores.top)
      top += Cat(top.empty() ? "{" : ", {", OneScore(tokenizer, score.id, score.logprob), "}");
    out += Cat("{", OneScore(tokenizer, token.id, token.scores.logprob), ", \"top_logprobs\": [", top, "]}");
  }
  return out + "]";
}

void CheckModel(RequestFields& fields, const ServerContext& context) {
  const std::optional<std::string> model = fields.String("model");
  if (!model || *model == context.model) return;
  fields.Fault(ApiError{404, Cat("model: this server has \"", context.model, "\" only (GET /v1/models)"), "model",
                        "model_not_found"});
}

}  // namespace deltafin
