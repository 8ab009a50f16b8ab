// StreamedExperts: the experts of a streamed folder: read from disk when they are there, else fetched, kept, then read.
//
// An expert that is absent waits in a queue; a few threads fetch what waits, each one range at a time, adjacent experts
// in one. What came is looked at (by the remote files, which may compare two fetches; every scale is a number), put
// into its place (checkpoint/stream_folder.h), and read from there like any other, so an answer's bits cannot depend on
// when an expert came. A record on disk whose checksum is wrong is fetched again, once. Reads that were not asked for
// by a layer (guesses, a warm start) never make anything be fetched: they fail at once with kUnavailable. A cancelled
// fetch ends at once; what was on its way for it still arrives and is kept. `disk` checks checksums and scales; it and
// the folder outlive this. The destructor stops what is being fetched and waits for what is being read. Thread-safe.
// Errors name layer, expert and file: those of the disk, of the remote files and of the folder; kIo for an absent
// expert when nothing may be fetched.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/cancel.h"
#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/expert_source.h"
#include "checkpoint/remote_files.h"
#include "checkpoint/stream_folder.h"
#include "checkpoint/stream_places.h"

namespace deltafin {

struct StreamedExpertsOptions {
  int connections = 8;               // ranges that are fetched at once
  uint64_t join_bytes = 40'000'000;  // most bytes of adjacent experts that are fetched as one range
};

struct FetchCounters {
  uint64_t experts = 0;        // fetched and put into their place
  uint64_t bytes = 0;          // of them, each counted once
  uint64_t fetched_again = 0;  // of those, that were on disk with a wrong checksum
  uint64_t waiting = 0;        // now: queued or on their way
  bool streamed = false;       // whether this is a model whose experts are fetched
  bool twice = false;          // every range comes at least twice and is compared
  double seconds = 0;          // with at least one on its way
};

class StreamedExperts final : public ExpertSource {
 public:
  // `remote` null: nothing may be fetched. `clock` outlives it.
  StreamedExperts(const Checkpoint& checkpoint, StreamFolder& folder, ExpertSource& disk,
                  std::unique_ptr<RemoteFiles> remote, const StreamedExpertsOptions& options, const Clock& clock);
  ~StreamedExperts() override;
  StreamedExperts(const StreamedExperts&) = delete;
  StreamedExperts& operator=(const StreamedExperts&) = delete;

  uint64_t record_bytes() const override { return disk_.record_bytes(); }
  uint64_t slot_bytes() const override { return disk_.slot_bytes(); }
  uint64_t slot_alignment() const override { return disk_.slot_alignment(); }
  bool HasCopy(ExpertKey key) const override { return disk_.HasCopy(key); }

  void Fetch(ExpertKey key, std::byte* slot, IoPriority priority, IoTag tag, Done done) override;
  IoTag NewTag() override { return disk_.NewTag(); }
  void Cancel(IoTag tag) override;
  void Raise(IoTag tag, IoPriority priority) override { disk_.Raise(tag, priority); }

  // On disk, or in no need of being fetched.
  bool IsThere(ExpertKey key) const;
  uint64_t absent() const;  // experts that are not there
  FetchCounters counters() const;
  // Most memory that what is on its way takes.
  uint64_t buffer_bytes() const { return threads_.size() * most_joined_bytes_; }

 private:
  struct Request {
    StreamedExperts* owner = nullptr;
    ExpertKey key;
    std::byte* slot = nullptr;
    IoPriority priority = IoPriority::kDemand;
    IoTag tag = 0;
    bool fetched_again = false;
    bool expired = false;  // `done` was called with kDeadline; the slot is not free yet
    bool reading = false;  // from disk
    Done done;
  };
  struct Download {
    FileRange range;
    bool running = false;
    std::vector<Request*> waiting;
  };

  Request* TakeRequest();
  void ReadFromDisk(Request* request);
  void Arrived(Request* request, Result<ExpertWeights> result);
  // False when it cannot be fetched.
  bool Enqueue(Request* request);
  bool FetchAgain(Request* request);
  void Conclude(Request* request, Result<ExpertWeights> result);
  bool IsBeingRead(const FileRange& range);

  void Work();
  std::vector<ExpertKey> TakeGroup();
  Status FetchGroup(const std::vector<ExpertKey>& group);
  Status CheckRecords(const std::vector<ExpertKey>& group, const StreamFile& file, Bytes bytes) const;
  void CountBusy(int change);
  std::string NameOf(ExpertKey key) const;

  const Checkpoint& checkpoint_;
  StreamFolder& folder_;
  ExpertSource& disk_;
  const std::unique_ptr<RemoteFiles> remote_;
  const StreamedExpertsOptions options_;
  const Clock& clock_;
  const StreamPlaces places_;
  const uint64_t most_joined_bytes_;
  CancelSource stop_fetching_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;  // something is queued, or it is time to stop
  std::condition_variable idle_;
  // Under the mutex.
  bool stop_ = false;
  std::map<ExpertKey, Download> downloads_;
  std::deque<ExpertKey> queue_;   // downloads that do not run
  std::deque<Request> requests_;  // all that were ever made; addresses stay
  std::vector<Request*> free_;
  size_t in_flight_ = 0;
  int busy_ = 0;
  int64_t busy_since_ns_ = 0;
  FetchCounters counters_;

  std::vector<std::thread> threads_;
};

}  // namespace deltafin
