#include "server/access.h"

#include <algorithm>
#include <sstream>

#include "base/json.h"
#include "server/api_error.h"

namespace deltafin {
namespace {

constexpr size_t kLeastKey = 8;
constexpr uint64_t kMaxKeyFile = 1 << 20;

ApiShape ShapeOf(const std::string& path) {
  return path.rfind("/v1/messages", 0) == 0 ? ApiShape::kAnthropic : ApiShape::kOpenAi;
}

// "localhost:8000" -> "localhost", "[::1]:8000" -> "::1".
std::string HostName(const std::string& host) {
  if (!host.empty() && host[0] == '[') return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

}  // namespace

bool IsLoopback(const std::string& host) { return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0; }

bool SameSecret(const std::string& a, const std::string& b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  return difference == 0;
}

Result<std::vector<std::string>> ReadKeys(const std::string& path) {
  Result<std::string> text = ReadWholeFile(path, kMaxKeyFile);
  if (!text) return Fail(ErrorCode::kInvalidArgument, "--api-key-file ", text.error().message());
  std::vector<std::string> keys;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    if (line.size() < kLeastKey)
      return Fail(ErrorCode::kInvalidArgument, "--api-key-file ", path, ": line ", keys.size() + 1,
                  ": expected a key of at least ", kLeastKey, " characters");
    keys.push_back(line);
  }
  if (keys.empty()) return Fail(ErrorCode::kInvalidArgument, "--api-key-file ", path, ": expected a key, got none");
  return keys;
}

int Access::KeyOf(const HttpRequest& request) const {
  std::string given = request.header("x-api-key");
  const std::string authorization = request.header("Authorization");
  if (given.empty() && authorization.rfind("Bearer ", 0) == 0) given = authorization.substr(7);
  int found = -1;
  for (size_t i = 0; i < options_.keys.size(); ++i)
    if (SameSecret(options_.keys[i], given)) found = static_cast<int>(i);
  return found;
}

bool Access::AllowsOrigin(const HttpRequest& request, const std::string& origin) const {
  for (const std::string& allowed : options_.origins)
    if (allowed == "*" || allowed == origin) return true;
  // The server's own page.
  const std::string host = request.header("Host");
  return origin == "http://" + host || origin == "https://" + host;
}

std::unique_ptr<HttpResponse> Access::Check(const HttpRequest& request) const {
  const ApiShape shape = ShapeOf(request.path);
  const auto refuse = [&](int status, const char* message) {
    auto response = std::make_unique<HttpResponse>(ErrorResponse({status, message}, shape));
    if (status == 401) response->headers.emplace_back("WWW-Authenticate", "Bearer");
    return response;
  };
  if (options_.loopback && options_.keys.empty() && !IsLoopback(HostName(request.header("Host"))))
    return refuse(403, "Host: this server answers to names of this machine only");
  const std::string origin = request.header("Origin");
  if (!origin.empty() && !AllowsOrigin(request, origin))
    return refuse(403, "Origin: pages of other origins may not ask this server: start it with --cors");
  if (request.method == "OPTIONS") return nullptr;
  const bool open = request.path == "/" || request.path.rfind("/health", 0) == 0;
  if (!options_.keys.empty() && !open && KeyOf(request) < 0)
    return refuse(401, "an API key is needed: Authorization: Bearer KEY");
  if (request.method != "POST") return nullptr;
  if (!request.header("Content-Encoding").empty())
    return refuse(415, "Content-Encoding: expected none: send the body as it is");
  // Also what keeps a page without permission from sending anything: browsers ask before they send this type.
  if (request.header("Content-Type").rfind("application/json", 0) != 0)
    return refuse(415, "Content-Type: expected application/json");
  return nullptr;
}

HttpHeaders Access::CorsHeaders(const HttpRequest& request) const {
  const std::string origin = request.header("Origin");
  if (origin.empty() || options_.origins.empty() || !AllowsOrigin(request, origin)) return {};
  return {{"Access-Control-Allow-Origin", origin},
          {"Vary", "Origin"},
          {"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
          {"Access-Control-Allow-Headers", "*, Authorization, Content-Type, x-api-key"},
          {"Access-Control-Max-Age", "600"}};
}

std::string Access::Client(const HttpRequest& request) const {
  const int key = options_.keys.empty() ? -1 : KeyOf(request);
  return key >= 0 ? Cat("key ", key) : request.remote_address;
}

}  // namespace deltafin
