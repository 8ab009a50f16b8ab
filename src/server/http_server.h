// HttpServer: HTTP/1.1 over TCP: connections, limits, routes; no knowledge of what is served.
//
// The only includer of httplib, which parses requests and writes responses; connections are ours, because that library
// bounds neither headers nor slow clients nor their number, and does not say when a client has gone. A request has a
// deadline from its first byte, a reader of a response one for each write. Handlers run on a thread of their
// connection, many at once. Thread-safe where not said otherwise. Errors: kUnavailable (the address cannot be bound).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace deltafin {

struct HttpLimits {
  uint64_t body_bytes = 32u << 20;
  uint64_t header_bytes = 64u << 10;  // request line and all headers
  int64_t connections = 256;
  double request_seconds = 30;  // from a request's first byte to its last
  double idle_seconds = 30;     // between requests of one connection
  double write_seconds = 30;    // for one write, when a client does not read
};

struct HttpRequest {
  std::string method, path, body;
  std::string remote_address;
  // The first header of this name, whatever its case; "" if there is none.
  std::function<std::string(const std::string&)> header;
  // The client has closed its side of the connection.
  std::function<bool()> client_gone;
};

// What a response that is written bit by bit is written to. False: nobody is there any more.
using HttpWriter = std::function<bool(std::string_view)>;
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers = {};
  std::function<void(const HttpWriter&)> stream = {};  // instead of body
};

using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

class HttpServer {
 public:
  HttpServer(const HttpLimits& limits);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // These three before Start(). A path is taken literally.
  void Route(const std::string& method, const std::string& path, HttpHandler handler);
  // Sees a request before its body is read; a response ends it there.
  void SetGate(std::function<std::unique_ptr<HttpResponse>(const HttpRequest&)> gate);
  // What is said of requests that no handler saw: a status (404, 413, 431, 400, 503) -> a body.
  void SetErrorBody(std::function<std::string(int status)> body);
  void SetDefaultHeaders(HttpHeaders headers);

  // Port 0: any that is free.
  Status Bind(const std::string& host, int port);
  int port() const;
  void Start();
  // Accepts nothing more, waits for handlers to return.
  void Stop();

  int64_t connections() const;

 private:
  class Listener;
  std::unique_ptr<Listener> listener_;
};

}  // namespace deltafin
