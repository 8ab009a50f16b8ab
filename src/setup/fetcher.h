// Fetcher: brings files, in order, by many connections at a time: the ranges of one file, and of the next ones within a
// window, so that no more partial files lie about than there is room for.
//
// A range is in the journal once its bytes are on the drive. It does not verify and does not publish: whoever owns it
// waits for a file, looks at it, and then either releases it (which moves the window) or asks for it again. A server
// that ignores ranges is asked for whole files. The first error of a connection stops all. Thread rule: one owner
// thread; connections run on threads of their own until the destructor.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "setup/model_source.h"
#include "setup/part_file.h"
#include "setup/setup_journal.h"

namespace deltafin {

struct FetchFile {
  HubFile file;
  uint32_t number = 0;             // in the journal
  std::string path;                // final
  std::vector<HttpRange> present;  // sorted, not overlapping
};

struct FetcherOptions {
  int connections = 8;
  uint64_t range_bytes = uint64_t{32} << 20;
  size_t window = 2;  // files that may be partial at a time
  DiskHook hook = {};
};

class Fetcher {
 public:
  // Source and journal outlive it.
  Fetcher(ModelSource& source, SetupJournal& journal, FetcherOptions options, std::vector<FetchFile> files);
  ~Fetcher();
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;

  void Start();
  void Stop() { stop_.Cancel(); }
  size_t size() const { return files_.size(); }
  const FetchFile& file(size_t i) const { return files_[i].what; }
  // True when file i is whole; false after `milliseconds` without that. The error of any connection.
  Result<bool> Wait(size_t i, int milliseconds);
  // Of a file that is whole and not released.
  PartFile& part(size_t i) { return *files_[i].part; }
  Status Again(size_t i);
  void Release(size_t i);
  // Received and, in the end, written by this object.
  uint64_t bytes_received() const { return received_.load(std::memory_order_relaxed); }

 private:
  struct Work {
    FetchFile what;
    std::unique_ptr<PartFile> part;
    std::vector<HttpRange> missing;  // not begun, the first one last
    int in_flight = 0;
    bool opened = false, whole_file = false, done = false;
  };
  struct Job {
    size_t file = 0;
    HttpRange range;
    bool whole_file = false;
  };

  void Loop();
  std::optional<Job> NextJob(std::unique_lock<std::mutex>& lock);
  Status OpenPart(Work& work);
  void Cut(Work& work) const;
  Status Run(const Job& job);
  void Finish(const Job& job, Status status);

  ModelSource& source_;
  SetupJournal& journal_;
  const FetcherOptions options_;
  std::vector<Work> files_;
  CancelSource stop_;
  std::atomic<uint64_t> received_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t released_ = 0;  // files before this one are
  Status error_;
  std::vector<std::thread> threads_;
};

}  // namespace deltafin
