#include "setup/hub_client.h"

#include <algorithm>
#include <set>
#include <utility>

namespace deltafin {
namespace {

constexpr uint64_t kMostPageBytes = uint64_t{32} << 20;
constexpr size_t kMostPages = 2000;
constexpr uint64_t kProgressBytes = 64 * 1024;  // an attempt that brought so much was no failure
constexpr int kMostContradictions = 3;          // answers that are wrong are wrong again, mostly

std::string Encoded(std::string_view text, bool keep_slashes) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '.' || c == '_' || c == '~' || (c == '/' && keep_slashes);
    if (plain)
      out += c;
    else
      out += Cat('%', kDigits[static_cast<unsigned char>(c) >> 4], kDigits[static_cast<unsigned char>(c) & 15]);
  }
  return out;
}

std::string WithoutSlash(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url;
}

Status CheckRepo(const std::string& repo) {
  const size_t slash = repo.find('/');
  bool ok = repo.size() < 200 && slash != std::string::npos && repo.find("..") == std::string::npos &&
            repo.front() != '/' && repo.back() != '/' && repo.find('/', slash + 1) == std::string::npos;
  for (const char c : repo)
    ok = ok && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
                c == '_' || c == '/');
  if (ok) return {};
  return Fail(ErrorCode::kInvalidArgument, "repository: expected OWNER/NAME, got ", repo);
}

// What a status that is no success means to the user.
Failure StatusError(const HttpResponse& r) {
  std::string said = r.Header("x-error-message");
  if (said.empty()) said = r.error_text;
  said = said.substr(0, 200);
  for (char& c : said)
    if (c < ' ' || c > '~') c = ' ';
  const std::string what =
      Cat(r.url, ": the server answered ", r.status, said.empty() ? "" : " (", said, said.empty() ? "" : ")");
  if (r.status == 401 || r.status == 403)
    return Fail(ErrorCode::kInvalidArgument, what,
                ": this repository needs a token that may read it: give one with --token-file, and accept the model's "
                "terms on its page if it has some");
  if (r.status == 404 || r.status == 410)
    return Fail(ErrorCode::kNotFound, what, ": check the name of the repository and the revision");
  if (r.status == 429)
    return Fail(ErrorCode::kIo, what,
                ": too many requests: wait a while and give the same command again, with fewer --connections");
  return Fail(ErrorCode::kIo, what);
}

}  // namespace

// Decides, after each attempt of one transfer, whether there is another.
class HubClient::Attempts {
 public:
  Attempts(HubClient& hub, CancelToken cancel)
      : hub_(hub), cancel_(cancel), most_(Most(hub)), backoff_(Options(hub, most_), hub.waiter_) {}

  // Nothing when `result` is a success, its error when that is final; otherwise waits, and `again` is true.
  Status Judge(const Result<HttpResponse>& result, uint64_t bytes_received, bool* again) {
    *again = false;
    Status status;
    std::optional<double> retry_after;
    bool transient = false;
    if (result && result->ok()) hub_.answered_ = true;
    if (!result) {
      status = Failure(Error(result.error()));
      const ErrorCode code = result.error().code();
      transient = IsTransientError(code) && (code != ErrorCode::kCorrupt || ++contradictions_ < kMostContradictions);
    } else if (!result->ok()) {
      status = StatusError(*result);
      retry_after = result->retry_after;
      transient = IsTransientStatus(result->status);
    }
    if (status || !transient) return status;
    if (bytes_received >= kProgressBytes) backoff_.Progressed();
    if (hub_.options_.on_retry) hub_.options_.on_retry(status.error().message());
    const std::optional<double> wait = backoff_.Plan(retry_after);
    if (wait) {
      if (hub_.options_.on_wait) hub_.options_.on_wait(backoff_.failures(), most_, *wait);
      hub_.waiter_.Wait(*wait, cancel_);
      *again = !cancel_.cancelled();
    }
    if (*again) return {};
    if (cancel_.cancelled()) return Fail(ErrorCode::kCancelled, status.error().message());
    if (retry_after && *retry_after > hub_.options_.retry.most_retry_after)
      return Fail(ErrorCode::kIo, status.error().message(), "; it asks to wait ", *retry_after, " s");
    return Fail(status.error().code(), status.error().message(), " (tried ", backoff_.failures(), " times)");
  }

 private:
  static int Most(const HubClient& hub) {
    const int all = hub.options_.retry.attempts, first = hub.options_.first_attempts;
    return hub.answered_ || first == 0 ? all : std::min(first, all);
  }
  static RetryOptions Options(HubClient& hub, int most) {
    RetryOptions options = hub.options_.retry;
    options.attempts = most;
    options.seed += hub.next_seed_++;
    return options;
  }

  HubClient& hub_;
  const CancelToken cancel_;
  const int most_;
  Backoff backoff_;
  int contradictions_ = 0;
};

Result<std::unique_ptr<HubClient>> HubClient::Create(HttpClient& http, Waiter& waiter, HubOptions options) {
  DFIN_TRY_VOID(CheckRepo(options.repo));
  options.endpoint = WithoutSlash(options.endpoint);
  options.mirror = WithoutSlash(options.mirror);
  DFIN_TRY_VOID(OriginOf(options.endpoint));
  if (!options.mirror.empty()) DFIN_TRY_VOID(OriginOf(options.mirror));
  if (options.revision.empty() || options.revision.size() > 200)
    return Fail(ErrorCode::kInvalidArgument, "revision: expected a branch, tag or commit, got ",
                options.revision.empty() ? "nothing" : "a name that is too long");
  for (const char c : options.token)
    if (c <= ' ' || c > '~')
      return Fail(ErrorCode::kInvalidArgument, "token: expected one word of printable characters");
  if (!options.token.empty() && !options.endpoint.starts_with("https:") && !IsLoopbackUrl(options.endpoint))
    return Fail(ErrorCode::kInvalidArgument, "endpoint ", options.endpoint,
                ": a token would cross the network unprotected: use https, or leave the token out");
  return std::unique_ptr<HubClient>(new HubClient(http, waiter, std::move(options)));
}

std::string HubClient::TokenFor(const std::string& url) const {
  if (options_.token.empty()) return "";
  const Result<std::string> mine = OriginOf(options_.endpoint), its = OriginOf(url);
  return mine && its && *mine == *its ? options_.token : "";
}

std::string HubClient::FileUrl(const HubFile& file) const {
  return Cat(options_.mirror.empty() ? options_.endpoint : options_.mirror, "/", options_.repo, "/resolve/", commit_,
             "/", Encoded(file.path, true));
}

Result<HttpResponse> HubClient::GetPage(const std::string& url, std::string& body, CancelToken cancel) {
  Attempts attempts(*this, cancel);
  for (;;) {
    body.clear();
    bool too_large = false;
    HttpRequest request;
    request.url = url;
    request.token = TokenFor(url);
    request.sink = [&](Bytes bytes) -> Status {
      too_large = body.size() + bytes.size() > kMostPageBytes;
      if (too_large)
        return Fail(ErrorCode::kUnsupported, url, ": expected an answer of at most ", kMostPageBytes,
                    " bytes, got more");
      body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return {};
    };
    Result<HttpResponse> response = http_.Get(request, cancel);
    bool again = false;
    DFIN_TRY_VOID(attempts.Judge(response, 0, &again));
    if (!again) return response;
  }
}

Result<std::string> HubClient::ResolveRevision(CancelToken cancel) {
  const std::string url =
      Cat(options_.endpoint, "/api/models/", options_.repo, "/revision/", Encoded(options_.revision, false));
  std::string body;
  DFIN_TRY_VOID(GetPage(url, body, cancel));
  Result<std::string> commit = ParseRevision(body);
  if (!commit) return FailWith(std::move(commit), url);
  return commit;
}

Result<HubListing> HubClient::List(const std::string& commit, CancelToken cancel) {
  commit_ = commit;
  if (commit.empty()) {
    DFIN_TRY(commit_, ResolveRevision(cancel));
  }
  const std::string first = Cat(options_.endpoint, "/api/models/", options_.repo, "/tree/", commit_, "?recursive=true");
  DFIN_TRY(const std::string origin, OriginOf(first));
  std::vector<HubFile> files;
  std::set<std::string> seen;
  std::string url = first;
  while (!url.empty()) {
    if (!seen.insert(url).second || seen.size() > kMostPages)
      return Fail(ErrorCode::kCorrupt, url, ": expected a file list that ends, got a circle or more than ", kMostPages,
                  " pages");
    std::string body;
    DFIN_TRY(const HttpResponse response, GetPage(url, body, cancel));
    if (Status parsed = ParseTreePage(body, files); !parsed) return FailWith(std::move(parsed), url);
    const std::string link = NextLink(response.Header("link"));
    if (link.empty()) break;
    DFIN_TRY(const std::string next, ResolveUrl(url, link));
    DFIN_TRY(const std::string there, OriginOf(next));
    if (there != origin)
      return Fail(ErrorCode::kCorrupt, url, ": expected the next page on the same server, got ", next);
    url = next;
  }
  Result<HubListing> listing = MakeListing(commit_, std::move(files));
  if (!listing) return FailWith(std::move(listing), first);
  if (listing->files.empty()) return Fail(ErrorCode::kNotFound, first, ": the repository has no files");
  return listing;
}

Status HubClient::AcceptFile(const HubFile& file, const HttpResponse& r) const {
  const auto differs = [&](std::string_view what, const auto& expected, const auto& got) {
    return Fail(ErrorCode::kCorrupt, r.url, ": ", file.path, ": expected ", what, " ", expected,
                " as in the file list, got ", got,
                ": the repository changed meanwhile, or this server has another version");
  };
  const std::string commit = r.Header("x-repo-commit");
  if (!commit.empty() && commit != commit_) return differs("commit", commit_, commit);
  if (r.total_bytes && *r.total_bytes != file.size) return differs("size", file.size, *r.total_bytes);
  std::string linked = r.Header("x-linked-etag");
  std::erase(linked, '"');
  if (linked.size() == 64 && !file.sha256.empty() && linked != file.sha256)
    return differs("sha256", file.sha256, linked);
  return {};
}

Status HubClient::FetchRange(const HubFile& file, uint64_t offset, uint64_t length, const RangeSink& sink,
                             CancelToken cancel) {
  if (offset > file.size || length > file.size - offset)
    return Fail(ErrorCode::kInvalidArgument, file.path, ": expected a range of its ", file.size, " bytes, got ", length,
                " from ", offset);
  Attempts attempts(*this, cancel);
  for (uint64_t done = 0; done < length;) {
    const uint64_t before = done;
    Status sink_status;
    HttpRequest request;
    request.url = FileUrl(file);
    request.token = TokenFor(request.url);
    request.range = HttpRange{offset + done, length - done};
    request.accept = [&](const HttpResponse& r) { return AcceptFile(file, r); };
    request.sink = [&](Bytes bytes) -> Status {
      sink_status = sink(offset + done, bytes);
      if (sink_status) done += bytes.size();
      return sink_status;
    };
    const Result<HttpResponse> response = http_.Get(request, cancel);
    if (!sink_status) return sink_status;
    bool again = false;
    DFIN_TRY_VOID(attempts.Judge(response, done - before, &again));
    if (!again && done < length) return Fail(ErrorCode::kCorrupt, request.url, ": the answer has no contents");
  }
  return {};
}

Status HubClient::FetchWhole(const HubFile& file, const RangeSink& sink, CancelToken cancel) {
  Attempts attempts(*this, cancel);
  uint64_t most = 0;  // that an attempt brought; one that got further was no failure
  for (;;) {
    uint64_t done = 0;
    Status sink_status;
    HttpRequest request;
    request.url = FileUrl(file);
    request.token = TokenFor(request.url);
    request.accept = [&](const HttpResponse& r) { return AcceptFile(file, r); };
    const auto wrong_size = [&](uint64_t got) {
      return Fail(ErrorCode::kCorrupt, request.url, ": expected ", file.size, " bytes, got ", got);
    };
    request.sink = [&](Bytes bytes) -> Status {
      if (bytes.size() > file.size - done) return wrong_size(done + bytes.size());
      sink_status = sink(done, bytes);
      if (sink_status) done += bytes.size();
      return sink_status;
    };
    Result<HttpResponse> response = http_.Get(request, cancel);
    if (!sink_status) return sink_status;
    if (response && response->ok() && done != file.size) response = wrong_size(done);
    bool again = false;
    DFIN_TRY_VOID(attempts.Judge(response, done - std::min(done, most), &again));
    most = std::max(most, done);
    if (!again) return {};
  }
}

Result<std::string> HubClient::FetchText(const HubFile& file, uint64_t max_bytes, CancelToken cancel) {
  if (file.size > max_bytes)
    return Fail(ErrorCode::kCorrupt, file.path, ": expected at most ", max_bytes, " bytes, got ", file.size);
  std::string text;
  DFIN_TRY_VOID(FetchWhole(
      file,
      [&](uint64_t offset, Bytes bytes) -> Status {
        text.resize(static_cast<size_t>(offset));
        text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return {};
      },
      cancel));
  return text;
}

}  // namespace deltafin
