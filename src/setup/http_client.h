// HttpClient: GET over HTTP and HTTPS with libcurl, for large files: ranges, redirects, a shared rate limit, an end to
// stalls.
//
// It does not try again (setup/retry.h) and knows nothing of hubs (setup/hub_client.h). A status that is no success is
// no error here: look at HttpResponse::status. The token goes to the origin (scheme, host, port) of the URL that was
// asked for and to no other, whatever the redirects say; from https no redirect leads to http. Thread-safe: any number
// of Get() at a time, each on a connection of its own that is kept for later. The only includer of curl is
// http_client.cc.
// Errors of Get(): kInvalidArgument (URL), kIo (no connection, cut off, a certificate), kDeadline (stalled), kCorrupt
// (an answer that contradicts itself or the range), kUnsupported (a server that ignores ranges), kCancelled, and
// whatever `accept` and `sink` return.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/result.h"
#include "setup/rate_limit.h"
#include "setup/waiter.h"

namespace deltafin {

struct HttpClientOptions {
  // Empty: as https_proxy, http_proxy and no_proxy of the environment say. "none": no proxy at all.
  std::string proxy = {};
  std::string user_agent = "deltafin";
  double connect_seconds = 20;
  // A transfer that brings less than kLeastBytes in so many seconds has stalled. Time in the sink does not count.
  double stall_seconds = 30;
  // Of all transfers together, bytes a second; 0: no limit.
  uint64_t bytes_per_second = 0;
};

struct HttpRange {
  uint64_t offset = 0;
  uint64_t length = 0;  // not 0
};

struct HttpResponse;

struct HttpRequest {
  std::string url;
  // With it, a body is given to the sink only when the server says that it is exactly this range.
  std::optional<HttpRange> range = {};
  std::string token = {};  // "": none
  // Sees an answer with such a status (all but its body) before the sink does; an error ends the transfer.
  std::function<Status(const HttpResponse&)> accept = {};
  // Gets the body of an answer with a status of 200 to 299, in order, as it arrives. An error ends the transfer.
  std::function<Status(Bytes)> sink = {};
};

struct HttpResponse {
  int status = 0;
  std::string url;         // after redirects
  bool all_https = false;  // so were all redirects on the way
  // By name in lower case; of the last answer, and of all redirects before it (a later one replaces an earlier one).
  std::map<std::string, std::string> headers, redirect_headers;
  std::string etag;                        // without quotes and the mark of weak ones
  std::optional<uint64_t> total_bytes;     // of the whole file, from Content-Range or Content-Length
  std::optional<double> retry_after = {};  // seconds; a date counts from the answer's own Date
  uint64_t body_bytes = 0;                 // given to the sink
  std::string error_text = {};             // the beginning of a body that was not given to the sink

  bool ok() const { return status >= 200 && status < 300; }
  // From the last answer, else from the redirects; "" when neither has it.
  std::string Header(const std::string& lower_case_name) const;
};

// "https://host:port" of a URL, as the token is bound to it. kInvalidArgument for what is no http or https URL, or has
// a user name or password in it.
Result<std::string> OriginOf(const std::string& url);
// Whether the URL's host is this machine, by its name or address.
bool IsLoopbackUrl(const std::string& url);
// `reference` (perhaps relative) as seen from `base`.
Result<std::string> ResolveUrl(const std::string& base, const std::string& reference);

class HttpClient {
 public:
  static constexpr uint64_t kLeastBytes = 1024;
  static constexpr int kMostRedirects = 8;

  // kInvalidArgument for a proxy that is no URL; kUnavailable when the library cannot start.
  static Result<std::unique_ptr<HttpClient>> Create(HttpClientOptions options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  Result<HttpResponse> Get(const HttpRequest& request, CancelToken cancel);

 private:
  struct Connection;
  struct Transfer;
  struct ReturnConnection;
  explicit HttpClient(HttpClientOptions options);
  Result<std::unique_ptr<Connection>> Take();
  Status Perform(Connection& connection, Transfer& transfer);
  Status Configure(Connection& connection, Transfer& transfer) const;

  const HttpClientOptions options_;
  const SteadyClock clock_;
  SleepingWaiter waiter_;
  RateLimit rate_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_;
};

}  // namespace deltafin
