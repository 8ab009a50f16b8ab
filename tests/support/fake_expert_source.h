// FakeExpertSource: experts made of numbers that depend on layer and expert only, arriving from threads in random
// order.
//
// Counts fetches, checks that no expert is fetched twice at once and that nothing is written into a slot that a test
// has noted as pinned, and fails where it is told to. A fetch starts when fewer than max_started are on their way; the
// others queue and can be cancelled. Fetches end in random order, and not while held. Thread-safe. Destroy it
// after every fetch has ended.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "checkpoint/expert_source.h"

namespace deltafin::test {

struct FakeExpertOptions {
  uint64_t seed = 1;
  int threads = 2;
  int64_t max_delay_us = 100;
  size_t max_started = 1'000'000;
  // Of every expert; rows and columns are multiples of 32.
  int64_t hidden = 64;
  int64_t intermediate = 32;
};

class FakeExpertSource final : public ExpertSource {
 public:
  explicit FakeExpertSource(const FakeExpertOptions& options);
  ~FakeExpertSource() override;

  // While held, no fetch ends, cancelled ones included.
  void Hold();
  void Release();
  // The next `times` fetches of `key` end with `error`.
  void Fail(ExpertKey key, const Error& error, int times = 1);
  // Experts have a second copy from now on.
  void HaveCopies() { copies_ = true; }
  // What a drive that hung does in the end: writes rubbish into every slot whose fetch ended with kDeadline, and lets
  // go.
  void EndHungReads();
  // Chance of any other fetch to end with kIo.
  void SetFailureProbability(double probability);

  // Whether `weights` are, byte for byte, the expert `key`.
  bool Holds(const ExpertWeights& weights, ExpertKey key) const;
  // From now on (until Unpinned) a fetch into the memory of `weights` is counted as a violation.
  void Pinned(const ExpertWeights& weights);
  void Unpinned(const ExpertWeights& weights);

  int fetches(ExpertKey key) const;
  IoPriority priority(ExpertKey key) const;  // of its latest fetch, raised or not
  int fetches() const;                       // of all experts
  int cancelled() const;                     // fetches that ended so
  int most_at_once_per_key() const;
  int writes_into_pinned() const;
  void WaitUntilFetched(int fetches) const;  // until this many were asked for
  void WaitUntilIdle() const;                // until none is queued or on its way

  uint64_t record_bytes() const override { return static_cast<uint64_t>(geometry_.record_bytes()); }
  uint64_t slot_bytes() const override { return WidenedBytesAnywhere(record_bytes(), slot_alignment()); }
  uint64_t slot_alignment() const override { return 512; }
  bool HasCopy(ExpertKey) const override { return copies_; }
  void Fetch(ExpertKey key, std::byte* slot, IoPriority priority, IoTag tag, Done done) override;
  IoTag NewTag() override { return ++last_tag_; }
  void Cancel(IoTag tag) override;
  void Raise(IoTag tag, IoPriority priority) override;

 private:
  struct Request {
    ExpertKey key;
    std::byte* slot;
    IoTag tag;
    Done done;
    bool started;
    bool cancelled;
  };
  struct PerKey {
    int fetches = 0;
    int at_once = 0;
    IoPriority priority = IoPriority::kDemand;
    std::vector<Error> failures;  // last one first to be used
  };

  void Serve();
  bool TakeOne(Request* request);
  void Start();
  Result<ExpertWeights> Outcome(const Request& request, bool unlucky);
  // The bytes of the expert, and where in its slot they start.
  std::vector<std::byte> Record(ExpertKey key) const;
  size_t Offset(ExpertKey key) const;
  ExpertWeights View(const std::byte* record) const;

  const FakeExpertOptions options_;
  const ExpertGeometry geometry_;
  std::atomic<IoTag> last_tag_{0};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::mt19937_64 random_;
  std::vector<Request> requests_;
  size_t started_ = 0;
  int serving_ = 0;
  std::map<ExpertKey, PerKey> keys_;
  std::vector<const std::byte*> pinned_;
  std::vector<Request> hung_;
  std::atomic<bool> copies_{false};
  int fetches_ = 0;
  int cancelled_ = 0;
  int most_at_once_ = 0;
  int writes_into_pinned_ = 0;
  double failure_probability_ = 0;
  bool held_ = false;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace deltafin::test
