// ExpertStore: routed experts straight from the checkpoint's shards: one read per expert, no cache.
//
// A slot takes the read as it comes from the drive, widened to the file's alignment, so the record begins anywhere in
// its first aligned block. The checkpoint and the scheduler outlive the store; its destructor waits for reads in
// flight. Thread-safe. Nothing is allocated per fetch while no more than `expected_in_flight` are in flight. Errors:
// those of the read, and kCorrupt for a scale byte of 255; both name layer and expert. A read that fails with kIo is
// tried once more before it is reported.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/expert_source.h"
#include "io/io_scheduler.h"

namespace deltafin {

class ExpertStore final : public ExpertSource {
 public:
  ExpertStore(const Checkpoint& checkpoint, IoScheduler& io, int expected_in_flight = 256);
  ~ExpertStore() override;
  ExpertStore(const ExpertStore&) = delete;
  ExpertStore& operator=(const ExpertStore&) = delete;

  uint64_t record_bytes() const override { return record_bytes_; }
  uint64_t slot_bytes() const override { return slot_bytes_; }
  uint64_t slot_alignment() const override { return alignment_; }

  void Fetch(ExpertKey key, std::byte* slot, IoPriority priority, IoTag tag, Done done) override;
  IoTag NewTag() override { return io_.NewTag(); }
  void Cancel(IoTag tag) override;

  // Reads that were tried a second time.
  uint64_t retries() const { return retries_.load(std::memory_order_relaxed); }

 private:
  struct Request {
    ExpertStore* store = nullptr;
    ExpertKey key;
    std::byte* slot = nullptr;
    IoPriority priority = IoPriority::kDemand;
    IoTag tag = 0;
    bool retried = false;
    Done done;
  };

  Request* TakeRequest();
  void Read(Request* request);
  void Finish(Request* request, Status status);
  Result<ExpertWeights> Check(ExpertKey key, const std::byte* record) const;

  const Checkpoint& checkpoint_;
  IoScheduler& io_;
  const ExpertGeometry geometry_;
  uint64_t record_bytes_ = 0;
  uint64_t alignment_ = 1;
  uint64_t slot_bytes_ = 0;

  std::atomic<uint64_t> retries_{0};

  std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<Request> requests_;  // all that were ever made; addresses stay
  std::vector<Request*> free_;
  size_t in_flight_ = 0;
};

}  // namespace deltafin
