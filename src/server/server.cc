#include "server/server.h"

#include <algorithm>
#include <cmath>

#include "server/endpoints.h"
#include "server/generation_settings.h"
#include "server/page.h"
#include "text/utf8.h"

namespace deltafin {
namespace {

// Nothing but what is in the page itself may run, and it may ask nobody but this server.
constexpr const char* kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const char* StatusText(int status) {
  switch (status) {
    case 404:
      return "there is nothing at this path: see docs/SERVER.md for those there are";
    case 413:
      return "the body is larger than this server takes";
    case 431:
      return "the headers are larger than this server takes";
    case 503:
      return "too many connections: try again later";
    case 500:
      return "an internal fault";
    default:
      return "the request cannot be read as HTTP";
  }
}

// The reader takes what Python takes; prompts need that, requests do not.
bool IsPlainJson(const PythonJson& value) {
  if (value.kind == PythonJson::Kind::kFloat) return std::isfinite(value.number);
  return std::all_of(value.items.begin(), value.items.end(), IsPlainJson) &&
         std::all_of(value.members.begin(), value.members.end(),
                     [](const PythonJsonMember& member) { return IsPlainJson(member.value); });
}

ApiShape ShapeOf(const std::string& path) {
  return path.rfind("/v1/messages", 0) == 0 ? ApiShape::kAnthropic : ApiShape::kOpenAi;
}

}  // namespace

Server::Server(Engine& engine, EngineMonitor& monitor, const Tokenizer& tokenizer, const ServerOptions& options,
               const ServerExtras& extras)
    : options_(options),
      access_(options.access),
      token_order_(tokenizer),
      prefixes_(engine.plan().prefix_cache_bytes, PrefixCache::IntervalFor(engine.plan().chunk)),
      service_(engine, monitor, prefixes_, options.service, extras.drafting, extras.logger),
      context_{tokenizer,          token_order_,           service_,        monitor,
               options.model_name, options.defaults,       options.request, options.version,
               SecondsSince1970(), options.comment_seconds},
      http_(options.http) {
  prefixes_.UseFiles(extras.files);  // no request can have come yet
  http_.SetErrorBody([](int status) { return ErrorBody({status, StatusText(status)}, ApiShape::kOpenAi); });
  http_.SetDefaultHeaders({{"X-Content-Type-Options", "nosniff"}});
  http_.SetGate([this](const HttpRequest& request) { return access_.Check(request); });
  AddRoutes();
}

Server::~Server() { Stop(); }

HttpResponse Server::Finished(const HttpRequest& request, HttpResponse response) {
  for (auto& header : access_.CorsHeaders(request)) response.headers.push_back(std::move(header));
  return response;
}

HttpResponse Server::ServePost(const HttpRequest& request, Endpoint endpoint) {
  const ApiShape shape = ShapeOf(request.path);
  if (request.body.size() != ToValidUtf8(request.body).size() || request.body != ToValidUtf8(request.body))
    return ErrorResponse({400, "the body: expected UTF-8", "", "invalid_json"}, shape);
  const Result<PythonJson> body = ParsePythonJson(request.body, options_.request.json_levels);
  if (!body) return ErrorResponse({400, "the body: " + body.error().message(), "", "invalid_json"}, shape);
  if (!IsPlainJson(*body))
    return ErrorResponse({400, "the body: NaN and infinite numbers are no JSON", "", "invalid_json"}, shape);
  return endpoint(context_, ApiRequest{request, *body, access_.Client(request)});
}

void Server::AddOptions(const std::string& path) {
  http_.Route("OPTIONS", path, [this](const HttpRequest& request) {
    return Finished(request, {204, "text/plain", ""});
  });
}

void Server::AddPost(const std::string& path, Endpoint endpoint) {
  http_.Route("POST", path,
              [this, endpoint](const HttpRequest& request) { return Finished(request, ServePost(request, endpoint)); });
  AddOptions(path);
}

void Server::AddGet(const std::string& path, Endpoint endpoint) {
  http_.Route("GET", path, [this, endpoint](const HttpRequest& request) {
    return Finished(request, endpoint(context_, ApiRequest{request, {}, access_.Client(request)}));
  });
  AddOptions(path);
}

void Server::AddRoutes() {
  AddPost("/v1/chat/completions", ChatCompletions);
  AddPost("/v1/completions", Completions);
  AddPost("/v1/responses", Responses);
  AddPost("/v1/messages", Messages);
  AddPost("/v1/messages/count_tokens", CountMessageTokens);
  AddPost("/v1/tokenize", Tokenize);
  AddPost("/v1/detokenize", Detokenize);
  AddGet("/v1/models", Models);
  AddGet("/v1/live", Live);
  AddGet("/metrics", Metrics);
  const auto health = [this](bool ready_only) {
    return [this, ready_only](const HttpRequest&) -> HttpResponse {
      const bool ready = ready_;
      return {ready || !ready_only ? 200 : 503, "application/json",
              Cat("{\"live\": true, \"ready\": ", ready ? "true" : "false", "}")};
    };
  };
  http_.Route("GET", "/health", health(true));
  http_.Route("GET", "/health/ready", health(true));
  http_.Route("GET", "/health/live", health(false));
  for (const PageFile& file : PageFiles())
    http_.Route("GET", std::string(file.path), [file](const HttpRequest&) -> HttpResponse {
      return {200,
              std::string(file.content_type),
              std::string(file.text),
              {{"Content-Security-Policy", kPagePolicy}, {"Referrer-Policy", "no-referrer"}}};
    });
}

Status Server::Start() {
  DFIN_TRY_VOID(http_.Bind(options_.host, options_.port));
  http_.Start();
  ready_ = true;
  return {};
}

void Server::Stop() {
  if (stopped_) return;
  stopped_ = true;
  ready_ = false;
  service_.Stop();  // every answer ends, so every connection does
  http_.Stop();
}

}  // namespace deltafin
