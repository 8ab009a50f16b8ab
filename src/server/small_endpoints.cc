// GET /v1/models, POST /v1/tokenize and /v1/detokenize.
#include "server/endpoints.h"
#include "server/generation_settings.h"
#include "server/json_text.h"
#include "server/token_json.h"

namespace deltafin {

HttpResponse Models(const ServerContext& context, const ApiRequest&) {
  return {200, "application/json",
          Cat("{\"object\": \"list\", \"data\": [{\"id\": ", JsonString(context.model),
              ", \"object\": \"model\", \"created\": ", context.started,
              ", \"owned_by\": \"deltafin\", \"max_model_len\": ", context.service.engine().plan().context, "}]}")};
}

HttpResponse Tokenize(const ServerContext& context, const ApiRequest& request) {
  RequestFields fields(request.body, "");
  CheckModel(fields, context);
  const std::optional<std::string> text = fields.String("text");
  if (!text) fields.Fault("text", "a string");
  const bool pieces = fields.Bool("with_pieces").value_or(false);
  if (const std::optional<ApiError> error = fields.Finish()) return ErrorResponse(*error, ApiShape::kOpenAi);
  PythonJson tokens = PythonJson::Array(), texts = PythonJson::Array();
  for (const TokenId id : context.tokenizer.EncodeRaw(*text)) {
    tokens.items.push_back(PythonJson::Integer(id));
    if (pieces) texts.items.push_back(JsonOf(*context.tokenizer.Decode({&id, 1})));
  }
  PythonJson out = JsonObject({{"tokens", tokens}, {"count", JsonOf(std::ssize(tokens.items))}});
  if (pieces) out.members.push_back({"pieces", texts});
  return {200, "application/json", JsonText(out)};
}

HttpResponse Detokenize(const ServerContext& context, const ApiRequest& request) {
  RequestFields fields(request.body, "");
  CheckModel(fields, context);
  const PythonJson* list = fields.Array("tokens");
  if (list == nullptr) fields.Fault("tokens", "a list of token ids");
  std::vector<TokenId> ids;
  for (size_t i = 0; list != nullptr && i < list->items.size(); ++i) {
    const std::optional<int64_t> id = list->items[i].AsInt64();
    if (id && *id >= 0 && *id < context.tokenizer.token_count())
      ids.push_back(static_cast<TokenId>(*id));
    else
      fields.Fault(Cat("tokens[", i, "]"), Cat("an id from 0 to ", context.tokenizer.token_count() - 1));
  }
  if (const std::optional<ApiError> error = fields.Finish()) return ErrorResponse(*error, ApiShape::kOpenAi);
  return {200, "application/json", JsonText(JsonObject({{"text", JsonOf(*context.tokenizer.Decode(ids))}}))};
}

}  // namespace deltafin
