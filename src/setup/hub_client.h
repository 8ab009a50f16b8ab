// HubClient: a model repository on a hub that speaks the public HTTP API of Hugging Face: its file list and its bytes.
//
// The revision is resolved once, by List(); from then on everything is asked of that commit, so a branch that moves
// meanwhile changes nothing, and an answer that names another commit, size or checksum is refused. Failures that may
// pass are tried again (setup/retry.h). It writes no files. Thread-safe after List(); any number of fetches at a time.
// Errors: kInvalidArgument (options; 401 and 403: the token), kNotFound (repository, revision, file), kCorrupt (answers
// that contradict each other), kUnsupported (the server ignores ranges), kIo, kDeadline, kCancelled, and the sink's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/cancel.h"
#include "base/result.h"
#include "setup/http_client.h"
#include "setup/hub_listing.h"
#include "setup/retry.h"

namespace deltafin {

struct HubOptions {
  std::string endpoint = "https://huggingface.co";
  std::string repo;  // "OWNER/NAME"
  std::string revision = "main";
  // Another server with the same paths, asked for the contents of files instead of the endpoint. The token does not go
  // there; what comes is checked against the endpoint's checksums.
  std::string mirror = {};
  std::string token = {};
  RetryOptions retry = {};
  // Of retry.attempts, until the hub has answered once: a wrong name should not be waited for long. 0: all of them.
  int first_attempts = 0;
  // Told before something is tried again; from several threads.
  std::function<void(const std::string&)> on_retry = {};
  // Told with it: attempts in a row that brought nothing, of how many, and the seconds until the next one.
  std::function<void(int attempts, int most, double seconds)> on_wait = {};
};

// Gets consecutive bytes of a file; `offset` is theirs in the file.
using RangeSink = std::function<Status(uint64_t offset, Bytes bytes)>;

class HubClient {
 public:
  // Client and waiter outlive it.
  static Result<std::unique_ptr<HubClient>> Create(HttpClient& http, Waiter& waiter, HubOptions options);

  // Resolves the revision, or takes `commit` if it is not "", and reads the file list of that commit.
  Result<HubListing> List(const std::string& commit, CancelToken cancel);
  // What the revision means now; changes nothing here.
  Result<std::string> ResolveRevision(CancelToken cancel);
  // For a commit and files that are known already: instead of List().
  void UseCommit(const std::string& commit) { commit_ = commit; }
  const std::string& commit() const { return commit_; }

  // Bytes of a file of the list. After a failure it goes on where it was; the sink sees every byte once, in order.
  Status FetchRange(const HubFile& file, uint64_t offset, uint64_t length, const RangeSink& sink, CancelToken cancel);
  // All of it in one request, for servers that ignore ranges. After a failure the sink sees it from 0 again.
  Status FetchWhole(const HubFile& file, const RangeSink& sink, CancelToken cancel);
  // A small file, whole. Not compared with its checksum.
  Result<std::string> FetchText(const HubFile& file, uint64_t max_bytes, CancelToken cancel);

  std::string FileUrl(const HubFile& file) const;
  const HubOptions& options() const { return options_; }

 private:
  HubClient(HttpClient& http, Waiter& waiter, HubOptions options)
      : http_(http), waiter_(waiter), options_(std::move(options)) {}
  class Attempts;
  // The body of one page of the API, and its headers.
  Result<HttpResponse> GetPage(const std::string& url, std::string& body, CancelToken cancel);
  Status AcceptFile(const HubFile& file, const HttpResponse& response) const;
  std::string TokenFor(const std::string& url) const;

  HttpClient& http_;
  Waiter& waiter_;
  const HubOptions options_;
  std::string commit_;
  std::atomic<uint64_t> next_seed_{0};
  std::atomic<bool> answered_{false};
};

}  // namespace deltafin
