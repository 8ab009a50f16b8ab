// setup_case: a client of a HubServer whose waits take no time, and a folder that it fetches into.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "setup/hub_client.h"
#include "setup/hub_server.h"
#include "setup/setup.h"
#include "support/test_data.h"

namespace deltafin::test {

// Notes what it was asked to wait, and does not.
class NoWaiter final : public Waiter {
 public:
  void Wait(double seconds, CancelToken) override {
    const std::lock_guard lock(mutex_);
    waits_.push_back(seconds);
  }
  std::vector<double> waits() const {
    const std::lock_guard lock(mutex_);
    return waits_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<double> waits_;
};

// Bytes that repeat nowhere.
std::string RandomBytes(size_t bytes, uint64_t seed);
// A repository of no model at all: three large files of several ranges, small ones, an empty one, one in a folder.
std::map<std::string, std::string> SmallRepository();

struct HubAccess {
  std::unique_ptr<HttpClient> http;
  NoWaiter waiter;
  std::unique_ptr<HubClient> hub;
  std::unique_ptr<ModelSource> source;

  explicit HubAccess(const HubServer& server, double stall_seconds = 5, HubOptions options = {});
};

// Ranges of 64 KiB, three connections, any model.
SetupOptions OptionsFor(const std::string& folder);
// All files below, without the journal, whose times differ, and the list of checksums.
std::map<std::string, std::string> FilesIn(const std::string& folder);
// "" when equal, else what differs first.
std::string FirstDifference(const std::map<std::string, std::string>& expected,
                            const std::map<std::string, std::string>& got);
// Partial files aside, every file has the contents that the repository lists.
std::string WrongFile(const std::map<std::string, std::string>& expected,
                      const std::map<std::string, std::string>& got);

}  // namespace deltafin::test
