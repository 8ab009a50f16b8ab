// endpoints.h: what the server answers to, one function a route.
//
// Each takes a request whose body has been parsed as JSON (null for GET) and who asked, "client" being the unit of
// fairness. Any thread, many at once. The context outlives the response's stream.
#pragma once

#include <string>

#include "server/api_error.h"
#include "server/http_server.h"
#include "server/server_context.h"
#include "text/python_json.h"

namespace deltafin {

struct ApiRequest {
  const HttpRequest& http;
  const PythonJson& body;
  std::string client;
};

HttpResponse ChatCompletions(const ServerContext& context, const ApiRequest& request);
HttpResponse Completions(const ServerContext& context, const ApiRequest& request);
HttpResponse Responses(const ServerContext& context, const ApiRequest& request);
HttpResponse Messages(const ServerContext& context, const ApiRequest& request);
HttpResponse CountMessageTokens(const ServerContext& context, const ApiRequest& request);
HttpResponse Models(const ServerContext& context, const ApiRequest& request);
HttpResponse Tokenize(const ServerContext& context, const ApiRequest& request);
HttpResponse Detokenize(const ServerContext& context, const ApiRequest& request);
HttpResponse Metrics(const ServerContext& context, const ApiRequest& request);
// What the page shows of the machine, as JSON.
HttpResponse Live(const ServerContext& context, const ApiRequest& request);

}  // namespace deltafin
