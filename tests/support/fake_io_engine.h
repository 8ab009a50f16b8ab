// FakeIoEngine: an IoEngine whose completions come when and in whatever order a test wants, with faults on demand.
//
// Reads real files (through the file's descriptor), or contents in memory registered for a DirectFile. Each submitted
// read becomes due after a random delay; Wait() takes a random one of those that are due. Reads can be held back as a
// whole; single ones can fail, hang, be slow or bring wrong bytes. Thread rule: Submit and Wait as for any engine;
// everything else from any thread, at any time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <vector>

#include "io/io_engine.h"

namespace deltafin::test {

// What happens to one read.
struct FakeFault {
  Status status = {};            // an error becomes its result
  uint64_t delivered_bytes = 0;  // ... after so many wanted bytes were written to the destination
  bool hangs = false;            // does not end before ReleaseHung()
  int64_t delay_us = 0;          // ends so much later
  int64_t flipped_byte = -1;     // of the wanted bytes: arrives with one bit wrong, without an error
};

struct FakeIoOptions {
  uint64_t seed = 1;
  int depth = 64;
  int64_t max_delay_us = 200;     // each read takes 0..this long
  double eio_probability = 0;     // of a read to fail with kIo
  uint64_t file_ends_at = ~0ull;  // every file seems to end here
};

class FakeIoEngine final : public IoEngine {
 public:
  explicit FakeIoEngine(const FakeIoOptions& options);

  // The bytes of `file` (which need not be open) from now on.
  void SetContents(const DirectFile* file, std::vector<std::byte> contents);
  // Called for every read when it ends; an error becomes its result.
  void SetFault(std::function<Status(const ReadRequest&)> fault);
  // Called for every read when it is submitted.
  void SetFaults(std::function<FakeFault(const ReadRequest&)> faults);
  // Reads that hang end, in the way their fault says.
  void ReleaseHung();
  size_t hung() const;
  // While held, no read ends.
  void Hold();
  void Release();

  std::vector<ReadRequest> submitted() const;  // all reads so far, in order
  size_t reads() const { return submitted().size(); }
  uint64_t most_bytes_in_flight() const;  // widened
  void WaitUntilSubmitted(size_t reads) const;

  std::string name() const override { return "fake"; }
  int depth() const override { return options_.depth; }
  void Submit(uint64_t id, const ReadRequest& request) override;
  size_t Wait(std::span<IoCompletion> out, int64_t timeout_ns) override;
  void Wake() override;

 private:
  struct Pending {
    uint64_t id;
    ReadRequest request;
    int64_t due_ns;
    FakeFault fault;
  };

  IoCompletion Complete(Pending& read);
  Status Transfer(const ReadRequest& request, uint64_t* bytes_read);

  const FakeIoOptions options_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::mt19937_64 random_;
  std::map<const DirectFile*, std::vector<std::byte>> contents_;
  std::function<Status(const ReadRequest&)> fault_;
  std::function<FakeFault(const ReadRequest&)> faults_;
  std::vector<Pending> pending_;
  std::vector<ReadRequest> submitted_;
  uint64_t bytes_in_flight_ = 0;
  uint64_t most_bytes_in_flight_ = 0;
  bool held_ = false;
  bool woken_ = false;
};

}  // namespace deltafin::test
