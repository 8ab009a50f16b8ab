// access.h: who may ask the server, and from which pages.
//
// A server on a loopback address takes requests whose Host is one, so that a foreign name that was made to point at it
// reaches nothing; pages of other origins are refused unless --cors allows theirs. With API keys every request but
// those for /health and the page carries one; keys are compared in constant time. Constant after creation, any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/http_server.h"

namespace deltafin {

struct AccessOptions {
  std::vector<std::string> keys = {};  // empty: none is asked for
  std::vector<std::string> origins = {};
  bool loopback = true;  // the server listens there only
};

class Access {
 public:
  explicit Access(AccessOptions options) : options_(std::move(options)) {}

  // Before the body is read; null: go on.
  std::unique_ptr<HttpResponse> Check(const HttpRequest& request) const;
  // What a browser wants to see on a response to a page of an allowed origin.
  HttpHeaders CorsHeaders(const HttpRequest& request) const;
  // Whose request it is, for fairness: the key's number, else the address.
  std::string Client(const HttpRequest& request) const;

 private:
  // Index of the key that the request carries; -1: none or a wrong one.
  int KeyOf(const HttpRequest& request) const;
  bool AllowsOrigin(const HttpRequest& request, const std::string& origin) const;

  AccessOptions options_;
};

// One key a line; empty lines and those that begin with # are none. kInvalidArgument names the file: unreadable, no
// key, or one of fewer than 8 characters.
Result<std::vector<std::string>> ReadKeys(const std::string& path);
bool IsLoopback(const std::string& host);
// Takes the same time wherever they differ.
bool SameSecret(const std::string& a, const std::string& b);

}  // namespace deltafin
