#include "setup/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

namespace deltafin {
namespace {

constexpr size_t kMostErrorText = 2048;
constexpr int kPollMs = 100;  // how soon a cancelled transfer notices
constexpr size_t kMostIdle = 64;

struct DeleteUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, DeleteUrl>;

std::string Part(const Url& url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return "";
  std::string out(text);
  curl_free(text);
  return out;
}

Result<Url> ParseUrl(const std::string& text) {
  const auto wrong = [&](std::string_view what) {
    return Fail(ErrorCode::kInvalidArgument, "URL ", text,
                ": expected http:// or https://, a host and no user name, got ", what);
  };
  Url url(curl_url());
  if (!url) return Fail(ErrorCode::kOutOfMemory, "URL: no memory");
  if (const CURLUcode code = curl_url_set(url.get(), CURLUPART_URL, text.c_str(), CURLU_NON_SUPPORT_SCHEME);
      code != CURLUE_OK)
    return wrong(curl_url_strerror(code));
  const std::string scheme = Part(url, CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") return wrong("the scheme " + scheme);
  if (!Part(url, CURLUPART_USER).empty() || !Part(url, CURLUPART_PASSWORD).empty()) return wrong("a user name");
  if (Part(url, CURLUPART_HOST).empty()) return wrong("no host");
  return url;
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string_view Trim(std::string_view text) {
  const char* const blank = " \t\r\n";
  const size_t begin = text.find_first_not_of(blank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blank) - begin + 1);
}

std::optional<uint64_t> Number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

// "bytes 0-99/1234" or "bytes 0-99/*".
struct ContentRange {
  uint64_t first = 0, last = 0;
  std::optional<uint64_t> total;
};
std::optional<ContentRange> ParseContentRange(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const size_t dash = text.find('-'), slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) return std::nullopt;
  const auto first = Number(text.substr(0, dash)), last = Number(text.substr(dash + 1, slash - dash - 1));
  const auto total = Number(text.substr(slash + 1));
  if (!first || !last || *last < *first || (!total && text.substr(slash + 1) != "*")) return std::nullopt;
  if (total && *last >= *total) return std::nullopt;
  return ContentRange{*first, *last, total};
}

std::optional<double> ParseRetryAfter(const std::string& text, const std::string& date) {
  if (const auto seconds = Number(text)) return static_cast<double>(*seconds);
  const time_t then = curl_getdate(text.c_str(), nullptr), now = curl_getdate(date.c_str(), nullptr);
  if (then == -1 || now == -1) return std::nullopt;
  return std::max(0.0, static_cast<double>(then - now));
}

}  // namespace

Result<std::string> OriginOf(const std::string& url) {
  DFIN_TRY(const Url parsed, ParseUrl(url));
  return Cat(Part(parsed, CURLUPART_SCHEME), "://", Lower(Part(parsed, CURLUPART_HOST)), ":",
             Part(parsed, CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

bool IsLoopbackUrl(const std::string& url) {
  const Result<Url> parsed = ParseUrl(url);
  if (!parsed) return false;
  const std::string host = Lower(Part(*parsed, CURLUPART_HOST));
  // Numbers only: 127.example.org is somebody else's.
  const bool numeric = host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "[::1]" || (numeric && host.starts_with("127."));
}

Result<std::string> ResolveUrl(const std::string& base, const std::string& reference) {
  DFIN_TRY(const Url url, ParseUrl(base));
  if (const CURLUcode code = curl_url_set(url.get(), CURLUPART_URL, reference.c_str(), CURLU_NON_SUPPORT_SCHEME);
      code != CURLUE_OK)
    return Fail(ErrorCode::kInvalidArgument, "URL ", reference, ": ", curl_url_strerror(code));
  std::string text = Part(url, CURLUPART_URL);
  DFIN_TRY_VOID(ParseUrl(text));
  return text;
}

std::string HttpResponse::Header(const std::string& name) const {
  if (const auto it = headers.find(name); it != headers.end()) return it->second;
  const auto it = redirect_headers.find(name);
  return it == redirect_headers.end() ? "" : it->second;
}

struct HttpClient::Connection {
  CURLM* multi = nullptr;
  CURL* easy = nullptr;
  char error[CURL_ERROR_SIZE] = {};  // what libcurl says of a failure, with names
  Connection() : multi(curl_multi_init()), easy(curl_easy_init()) {}
  ~Connection() {
    curl_easy_cleanup(easy);
    curl_multi_cleanup(multi);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
};

// One request without its redirects, and what came back.
struct HttpClient::Transfer {
  const HttpRequest& request;
  HttpClient& client;
  const CancelToken cancel;
  const std::string url;
  const bool send_token;
  CURL* easy = nullptr;
  curl_slist* sent_headers = nullptr;
  HttpResponse response;
  Status failed;  // of the sink, or of what this class found wrong
  bool body_began = false;
  bool body_wanted = false;
  uint64_t received = 0;  // since window_began_ns
  int64_t window_began_ns = 0;
  SteadyClock clock = {};

  Transfer(const HttpRequest& r, HttpClient& c, CancelToken k, std::string u, bool t)
      : request(r), client(c), cancel(k), url(std::move(u)), send_token(t) {}
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer() { curl_slist_free_all(sent_headers); }

  static size_t OnHeader(char* data, size_t size, size_t count, void* self) {
    static_cast<Transfer*>(self)->Header(std::string_view(data, size * count));
    return size * count;
  }
  static size_t OnBody(char* data, size_t size, size_t count, void* self) {
    const size_t bytes = size * count;
    return static_cast<Transfer*>(self)->Body(std::as_bytes(std::span(data, bytes))) ? bytes : 0;
  }

  void Header(std::string_view line) {
    if (line.starts_with("HTTP/")) response.headers.clear();  // "100 Continue" and the answers of proxies
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) return;
    response.headers[Lower(Trim(line.substr(0, colon)))] = Trim(line.substr(colon + 1));
  }

  // Everything about the answer that is known before its body.
  void Begin() {
    body_began = true;
    long status = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    response.status = static_cast<int>(status);
    response.url = url;
    const std::string etag = Own("etag");
    std::string_view tag = etag;
    if (tag.starts_with("W/")) tag.remove_prefix(2);
    if (tag.size() >= 2 && tag.front() == '"' && tag.back() == '"') tag = tag.substr(1, tag.size() - 2);
    response.etag = tag;
    if (const std::string after = Own("retry-after"); !after.empty())
      response.retry_after = ParseRetryAfter(after, Own("date"));
    const std::optional<ContentRange> range = ParseContentRange(Own("content-range"));
    if (response.status == 206 && range) response.total_bytes = range->total;
    if (response.status == 200) response.total_bytes = Number(Own("content-length"));
    body_wanted = response.ok();
    if (body_wanted && request.range) failed = CheckRange(range);
    if (body_wanted && failed && request.accept) failed = request.accept(response);
  }

  std::string Own(const std::string& name) const {
    const auto it = response.headers.find(name);
    return it == response.headers.end() ? "" : it->second;
  }

  Status CheckRange(const std::optional<ContentRange>& got) const {
    const HttpRange& asked = *request.range;
    const uint64_t last = asked.offset + asked.length - 1;
    if (response.status == 200)
      return Fail(ErrorCode::kUnsupported, url, ": expected bytes ", asked.offset, " to ", last,
                  ", got the whole file: this server ignores ranges");
    if (!got || response.status != 206)
      return Fail(ErrorCode::kCorrupt, url, ": expected bytes ", asked.offset, " to ", last, ", got status ",
                  response.status, " with Content-Range \"", Own("content-range"), "\"");
    if (got->first != asked.offset || got->last != last)
      return Fail(ErrorCode::kCorrupt, url, ": expected bytes ", asked.offset, " to ", last, ", got ", got->first,
                  " to ", got->last);
    return {};
  }

  bool Body(Bytes bytes) {
    if (!body_began) Begin();
    if (!failed) return false;
    received += bytes.size();
    if (!body_wanted) {
      const size_t room = kMostErrorText - std::min(kMostErrorText, response.error_text.size());
      response.error_text.append(reinterpret_cast<const char*>(bytes.data()), std::min(room, bytes.size()));
      // A redirect's or an error's body is of no use; one without end must not keep us.
      return room > 0;
    }
    if (request.range && response.body_bytes + bytes.size() > request.range->length) {
      failed = Fail(ErrorCode::kCorrupt, url, ": expected ", request.range->length, " bytes, got more");
      return false;
    }
    const int64_t before = clock.NowNs();
    client.rate_.Take(bytes.size(), cancel);
    if (request.sink) failed = request.sink(bytes);
    window_began_ns += clock.NowNs() - before;
    response.body_bytes += bytes.size();
    return static_cast<bool>(failed);
  }

  // Called again and again while the transfer runs.
  Status Watch(double stall_seconds) {
    if (cancel.cancelled()) return Fail(ErrorCode::kCancelled, url, ": stopped");
    const int64_t now = clock.NowNs();
    if (SecondsBetween(window_began_ns, now) < stall_seconds) return {};
    if (received < kLeastBytes)
      return Fail(ErrorCode::kDeadline, url, ": stalled: ", received, " bytes in ", stall_seconds, " s");
    received = 0;
    window_began_ns = now;
    return {};
  }

  Status Finish(CURLcode code, std::string_view said) const {
    if (!failed) return failed;
    const bool cut_error_text = code == CURLE_WRITE_ERROR && body_began && !body_wanted;
    if (code == CURLE_OK || cut_error_text) {
      if (body_wanted && request.range && response.body_bytes != request.range->length)
        return Fail(ErrorCode::kIo, url, ": cut off: expected ", request.range->length, " bytes, got ",
                    response.body_bytes);
      return {};
    }
    // The URL's scheme was looked at before: it is the answer that libcurl knows no protocol for.
    if (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_WEIRD_SERVER_REPLY)
      return Fail(ErrorCode::kIo, url, ": expected an answer in HTTP, got something else (", said, ")");
    return Fail(code == CURLE_URL_MALFORMAT ? ErrorCode::kInvalidArgument : ErrorCode::kIo, url, ": ",
                said.empty() ? std::string_view(curl_easy_strerror(code)) : said);
  }
};

HttpClient::HttpClient(HttpClientOptions options)
    : options_(std::move(options)), rate_(options_.bytes_per_second, clock_, waiter_) {}

HttpClient::~HttpClient() = default;

Result<std::unique_ptr<HttpClient>> HttpClient::Create(HttpClientOptions options) {
  static const CURLcode kStarted = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (kStarted != CURLE_OK)
    return Fail(ErrorCode::kUnavailable, "libcurl does not start: ", curl_easy_strerror(kStarted));
  if (!options.proxy.empty() && options.proxy != "none") {
    const Url url(curl_url());
    if (!url || curl_url_set(url.get(), CURLUPART_URL, options.proxy.c_str(),
                             CURLU_NON_SUPPORT_SCHEME | CURLU_GUESS_SCHEME) != CURLUE_OK)
      return Fail(ErrorCode::kInvalidArgument, "proxy: expected a URL such as http://host:3128, or none, got ",
                  options.proxy);
    const std::string scheme = Part(url, CURLUPART_SCHEME);
    constexpr std::string_view kSchemes[] = {"http", "https", "socks4", "socks4a", "socks5", "socks5h"};
    if (std::find(std::begin(kSchemes), std::end(kSchemes), scheme) == std::end(kSchemes))
      return Fail(ErrorCode::kInvalidArgument, "proxy: expected http, https, socks4 or socks5 before ://, got ",
                  scheme);
  }
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(options)));
}

// Gives a connection back for the next transfer, but none that a transfer failed on: what state libcurl left it in is
// not known (after a name that was not found, 7.88 refuses options).
struct HttpClient::ReturnConnection {
  HttpClient& client;
  std::unique_ptr<Connection> connection;
  bool succeeded = false;
  ~ReturnConnection() {
    if (!succeeded) return;
    const std::lock_guard lock(client.mutex_);
    if (client.idle_.size() < kMostIdle) client.idle_.push_back(std::move(connection));
  }
};

Result<std::unique_ptr<HttpClient::Connection>> HttpClient::Take() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  auto connection = std::make_unique<Connection>();
  if (connection->multi == nullptr || connection->easy == nullptr)
    return Fail(ErrorCode::kOutOfMemory, "HTTP: no memory for a connection");
  return connection;
}

Status HttpClient::Configure(Connection& connection, Transfer& transfer) const {
  CURL* const easy = connection.easy;
  curl_easy_reset(easy);
  const auto add = [&](const std::string& header) {
    curl_slist* const longer = curl_slist_append(transfer.sent_headers, header.c_str());
    if (longer != nullptr) transfer.sent_headers = longer;
    return longer != nullptr;
  };
  bool ok = add("Accept-Encoding: identity");
  if (transfer.send_token) ok = ok && add("Authorization: Bearer " + transfer.request.token);
  const auto set = [&](auto option, auto value) { ok = ok && curl_easy_setopt(easy, option, value) == CURLE_OK; };
  set(CURLOPT_URL, transfer.url.c_str());
  set(CURLOPT_HTTPHEADER, transfer.sent_headers);
  set(CURLOPT_USERAGENT, options_.user_agent.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_seconds * 1000));
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  connection.error[0] = '\0';
  set(CURLOPT_ERRORBUFFER, &connection.error[0]);
  set(CURLOPT_HEADERFUNCTION, &Transfer::OnHeader);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
  set(CURLOPT_WRITEFUNCTION, &Transfer::OnBody);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  if (options_.proxy == "none")
    set(CURLOPT_NOPROXY, "*");
  else if (!options_.proxy.empty())
    set(CURLOPT_PROXY, options_.proxy.c_str());
  // Only for speed: refused, it is as it was.
  (void)curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 256L * 1024L);
  std::string range;
  if (transfer.request.range) {
    const HttpRange& r = *transfer.request.range;
    range = Cat(r.offset, "-", r.offset + r.length - 1);
    set(CURLOPT_RANGE, range.c_str());
  }
  if (!ok) return Fail(ErrorCode::kInternal, transfer.url, ": libcurl refused an option");
  return {};
}

Status HttpClient::Perform(Connection& connection, Transfer& transfer) {
  DFIN_TRY_VOID(Configure(connection, transfer));
  transfer.easy = connection.easy;
  transfer.window_began_ns = transfer.clock.NowNs();
  if (curl_multi_add_handle(connection.multi, connection.easy) != CURLM_OK)
    return Fail(ErrorCode::kInternal, transfer.url, ": libcurl refused the transfer");
  Status status;
  int running = 1;
  CURLcode code = CURLE_OK;
  while (status && running > 0) {
    if (curl_multi_perform(connection.multi, &running) != CURLM_OK)
      status = Fail(ErrorCode::kIo, transfer.url, ": the transfer failed");
    if (!status || running == 0) break;
    status = transfer.Watch(options_.stall_seconds);
    if (status) curl_multi_poll(connection.multi, nullptr, 0, kPollMs, nullptr);
  }
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(connection.multi, &left))
    if (message->msg == CURLMSG_DONE) code = message->data.result;
  if (status && !transfer.body_began && code == CURLE_OK) transfer.Begin();
  curl_multi_remove_handle(connection.multi, connection.easy);
  if (!status) return status;
  return transfer.Finish(code, static_cast<const char*>(connection.error));
}

Result<HttpResponse> HttpClient::Get(const HttpRequest& request, CancelToken cancel) {
  if (request.range && (request.range->length == 0 || request.range->offset > UINT64_MAX - request.range->length))
    return Fail(ErrorCode::kInvalidArgument, request.url, ": expected a range of bytes, got ", request.range->length,
                " from ", request.range->offset);
  DFIN_TRY(const std::string origin, OriginOf(request.url));
  std::string url = request.url;
  std::map<std::string, std::string> redirect_headers;
  bool all_https = true;
  for (int redirects = 0;; ++redirects) {
    DFIN_TRY(const std::string here, OriginOf(url));
    DFIN_TRY(auto connection, Take());
    ReturnConnection keep{*this, std::move(connection)};
    all_https = all_https && url.starts_with("https:");
    Transfer transfer(request, *this, cancel, url, !request.token.empty() && here == origin);
    transfer.response.redirect_headers = redirect_headers;
    DFIN_TRY_VOID(Perform(*keep.connection, transfer));
    keep.succeeded = true;
    HttpResponse& got = transfer.response;
    got.all_https = all_https;
    const bool redirected = got.status >= 301 && got.status <= 308 && got.status != 304 && got.status != 305 &&
                            got.status != 306 && got.headers.contains("location");
    if (!redirected) return std::move(got);
    if (redirects == kMostRedirects)
      return Fail(ErrorCode::kCorrupt, request.url, ": expected at most ", kMostRedirects, " redirects, got more");
    Result<std::string> next = ResolveUrl(url, got.headers["location"]);
    if (!next) return Fail(ErrorCode::kCorrupt, url, ": redirected to what is no URL: ", next.error().message());
    if (url.starts_with("https:") && !next->starts_with("https:"))
      return Fail(ErrorCode::kCorrupt, url, ": redirected from https to ", *next, ", which is not protected");
    url = *next;
    for (auto& [name, value] : got.headers) redirect_headers[name] = std::move(value);
  }
}

}  // namespace deltafin
