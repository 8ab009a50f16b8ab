// ExpertStore: routed experts as they are stored, read into slots: no cache.
//
// Where experts lie is the locator's business (checkpoint/expert_locator.h). Failed and hung reads are tried again by
// the I/O scheduler; this tries again when the bytes that came are wrong: with `verify_reads` a record whose checksum
// differs (expert sets only), always a scale byte of 255. Such a record is read again, from the first copies alone;
// then what was wrong comes from its second copy, twice in turn; then it is kCorrupt. The scheduler outlives the store;
// the destructor waits for reads in flight. Thread-safe. Nothing is allocated per fetch while no more than
// `expected_in_flight` are in flight. Errors: those of the read, and kCorrupt; all name layer and expert, file and
// bytes (the file's path begins with its drive's folder).
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/expert_locator.h"
#include "checkpoint/expert_source.h"
#include "io/io_scheduler.h"

namespace deltafin {

struct ExpertStoreOptions {
  // Compares every record with its checksum before it is used. Costs a pass over its bytes on the scheduler's thread.
  bool verify_reads = false;
  int expected_in_flight = 256;
};

struct ExpertStoreCounters {
  uint64_t verified = 0;     // records whose checksum was right
  uint64_t mismatched = 0;   // reads whose checksum was wrong or that had a scale of 255, each try counted
  uint64_t from_copies = 0;  // records that were right only when read from second copies
};

class ExpertStore final : public ExpertSource {
 public:
  ExpertStore(std::unique_ptr<const ExpertLocator> locator, IoScheduler& io, const ExpertStoreOptions& options = {});
  // From the shards. The checkpoint outlives the store.
  ExpertStore(const Checkpoint& checkpoint, IoScheduler& io, const ExpertStoreOptions& options = {})
      : ExpertStore(LocateInShards(checkpoint), io, options) {}
  // From an expert set whose drives are numbered from `first_drive`. The set outlives the store.
  ExpertStore(const ExpertSet& set, int32_t first_drive, IoScheduler& io, const ExpertStoreOptions& options = {})
      : ExpertStore(LocateInSet(set, first_drive), io, options) {}
  ~ExpertStore() override;
  ExpertStore(const ExpertStore&) = delete;
  ExpertStore& operator=(const ExpertStore&) = delete;

  uint64_t record_bytes() const override { return locator_->record_bytes(); }
  uint64_t slot_bytes() const override { return locator_->slot_bytes(); }
  uint64_t slot_alignment() const override { return locator_->slot_alignment(); }
  bool HasCopy(ExpertKey key) const override { return locator_->HasCopy(key); }

  void Fetch(ExpertKey key, std::byte* slot, IoPriority priority, IoTag tag, Done done) override;
  IoTag NewTag() override { return io_.NewTag(); }
  void Cancel(IoTag tag) override { io_.Cancel(tag); }
  void Raise(IoTag tag, IoPriority priority) override { io_.Raise(tag, priority); }

  ExpertStoreCounters counters() const;

 private:
  // The first try, then in turn the first copies and the second ones: odd and even tries.
  static constexpr int kMostTries = 5;
  struct Request {
    ExpertStore* store = nullptr;
    ExpertKey key;
    std::byte* slot = nullptr;
    IoPriority priority = IoPriority::kDemand;
    IoTag tag = 0;
    int attempt = 0;
    bool expired = false;                 // `done` was called with kDeadline; the slot is not free yet
    std::vector<RecordRange> wrong = {};  // of the latest try that brought wrong bytes
    bool rest_is_right = false;           // what is not in `wrong` need not be read again
    Done done;
  };
  // Bytes that came and are not those that should have.
  struct Wrong {
    std::vector<RecordRange> ranges;  // empty: nothing is wrong
    std::string what;
    bool rest_is_right = false;
  };

  Request* TakeRequest();
  void Start(Request* request, std::span<const ReadPart> parts);
  void Finish(Request* request, Status status);
  Result<ExpertWeights> Examine(const Request& request, Wrong& wrong);
  bool TryAgain(Request* request, bool any_copy);
  void KeepToOneCopy(std::span<ReadPart> parts) const;
  void Conclude(Request* request, Result<ExpertWeights> result);
  Wrong FindWrongScale(ExpertKey key, const ExpertWeights& weights) const;

  const std::unique_ptr<const ExpertLocator> locator_;
  IoScheduler& io_;
  const bool verify_reads_;

  std::atomic<uint64_t> verified_{0}, mismatched_{0}, from_copies_{0};

  std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<Request> requests_;  // all that were ever made; addresses stay
  std::vector<Request*> free_;
  size_t in_flight_ = 0;
};

}  // namespace deltafin
