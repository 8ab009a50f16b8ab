// HubServer: a hub on this machine for tests: the file list in pages, contents by range, large files by a redirect to
// another port; and, through a function that may change any answer before it is sent, every way a server or a line can
// misbehave.
//
// Raw sockets, so that it can cut a connection anywhere. A thread for each connection; the function is called by one at
// a time. Serves what it was given from memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace deltafin::test {

struct HubRequest {
  std::string target;  // path and query
  std::string file;    // of the repository; "" for the API
  std::string range;   // the header
  std::string authorization;
  bool to_content_port = false;  // the port that redirects lead to
  size_t number = 0;             // of requests before it
};

struct HubAnswer {
  int status = 200;
  std::map<std::string, std::string> headers;
  std::string body;
  std::string raw = {};            // sent instead of all that, when it is not ""
  std::optional<size_t> cut_at;    // the connection ends after so many bytes of the body
  std::optional<size_t> stall_at;  // nothing more comes, and the connection stays open
};

class HubServer {
 public:
  static constexpr const char* kRepo = "someone/model";
  static constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

  // Names to contents. Names that end in .safetensors are in large file storage.
  explicit HubServer(std::map<std::string, std::string> files);
  // All files of a folder.
  static std::map<std::string, std::string> FilesOf(const std::string& folder);
  ~HubServer();
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  std::string url() const;
  std::string content_url() const;
  // Before requests come.
  void Disturb(std::function<void(const HubRequest&, HubAnswer&)> disturb);
  void RequireToken(std::string token);
  void SetPageFiles(size_t files) { page_files_ = files; }
  std::vector<HubRequest> requests() const;
  const std::map<std::string, std::string>& files() const { return files_; }

 private:
  struct Listener {
    int fd = -1;
    int port = 0;
    std::thread thread;
  };
  void Listen(Listener& listener, bool content);
  void Serve(int fd, bool content);
  HubAnswer Answer(const HubRequest& request) const;
  HubAnswer Tree(const std::string& target) const;
  HubAnswer File(const HubRequest& request) const;
  bool Send(int fd, const HubAnswer& answer);

  const std::map<std::string, std::string> files_;
  std::map<std::string, std::string> digests_;
  Listener api_, content_;
  std::atomic<bool> stop_{false};
  size_t page_files_ = 4;
  std::string token_;
  mutable std::mutex mutex_;
  std::function<void(const HubRequest&, HubAnswer&)> disturb_;
  std::vector<HubRequest> requests_;
  std::vector<std::thread> connections_;
};

}  // namespace deltafin::test
