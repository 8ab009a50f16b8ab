// hub_server.h: a hub of this process: serves a folder over the public HTTP API that setup speaks, as badly as told.
//
// One thread a connection, one request a connection. Faults are drawn from a seeded generator; each kind that may
// happen happens once before any is drawn, so that a test can rely on it. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace deltafin::test {

// Of answers with contents of files, in percent; or how many there were.
struct HubFaults {
  int drop = 0;      // closed without an answer
  int truncate = 0;  // closed in the middle of the body
  int error = 0;     // 500
  int busy = 0;      // 429 with Retry-After: 0
  int flip = 0;      // one bit of the body is wrong
  int stall = 0;     // nothing more comes after half of the body, for three seconds
};

class HubServer {
 public:
  static constexpr const char* kRepo = "made/k3-nano";

  explicit HubServer(const std::string& folder);
  ~HubServer();
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  std::string endpoint() const;
  void SetFaults(const HubFaults& faults);
  HubFaults happened() const;  // since SetFaults
  // The next so many answers with the header of a shard, of each shard, have a bit in it so wrong that it shows.
  void FlipHeaders(int count);
  // Whole files only, whatever range is asked for.
  void IgnoreRanges() { ignores_ranges_ = true; }
  // From now on main is another commit; with `forget` the first one is gone.
  void Move(bool forget);
  std::string first_commit() const { return std::string(40, 'a'); }
  // Nobody is answered any more: connections are closed at once.
  void GoAway() { away_ = true; }
  // As it was in the beginning.
  void BeGood();
  // Each answer with contents begins so much later.
  void SetDelay(int milliseconds) { delay_ms_ = milliseconds; }

  uint64_t body_bytes() const { return body_bytes_; }  // of contents of files, sent
  int requests() const { return requests_; }           // for contents of files
  bool saw_token() const { return saw_token_; }

 private:
  struct File {
    std::string path, sha256;
    uint64_t bytes = 0;
  };
  void Accept();
  void Serve(int socket);
  void ServeFile(int socket, const std::string& path, const std::string& range);
  enum class Fault { kNone, kDrop, kTruncate, kError, kBusy, kFlip, kStall };
  Fault NextFault();
  void Flip(std::string& body);
  void FlipHeader(const std::string& path, std::string& body);
  std::string Listing() const;

  const std::string folder_;
  std::vector<File> files_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stop_{false}, away_{false}, moved_{false}, forgotten_{false};
  std::atomic<uint64_t> body_bytes_{0};
  std::atomic<int> requests_{0}, delay_ms_{0}, serving_{0};
  std::atomic<bool> ignores_ranges_{false}, saw_token_{false};
  mutable std::mutex mutex_;
  HubFaults faults_, happened_;
  int header_flips_ = 0;
  std::map<std::string, int> flipped_headers_;  // by path, since FlipHeaders
  std::vector<Fault> due_;  // those that have not happened yet
  std::mt19937 random_{20261130};
  std::thread thread_;
};

}  // namespace deltafin::test
