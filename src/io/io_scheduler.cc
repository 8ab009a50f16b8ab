#include "io/io_scheduler.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "io/request_queue.h"

namespace deltafin {
namespace {

constexpr int kInitialNodes = 256;  // reads held at once before the pool grows
constexpr size_t kReapBatch = 64;   // completions taken from the engine at once

}  // namespace

// One thread runs Loop(): under the lock it moves chunks from the queues into to_submit_ and ended reads into ended_;
// without the lock it submits, waits and calls back. No call-back and no engine call happens under the lock, Wake()
// included.
class IoScheduler::Impl {
 public:
  Impl(std::unique_ptr<IoEngine> engine, IoSchedulerOptions options, const Clock*)
      : engine_(std::move(engine)), options_(std::move(options)), pool_(kInitialNodes) {
    if (options_.chunk_bytes == 0) options_.chunk_bytes = 1 << 20;
    if (options_.window_bytes == 0) options_.window_bytes = 32 << 20;
    const auto depth = static_cast<size_t>(engine_->depth());
    chunks_.resize(depth);
    for (size_t i = depth; i > 0; --i) free_chunks_.push_back(i - 1);
    to_submit_.reserve(depth);
    completions_.resize(std::min(depth, kReapBatch));
    thread_ = std::thread([this] { Loop(); });
  }

  // Callbacks may still read while this runs, so it comes before any member is gone.
  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    engine_->Wake();
    thread_.join();
  }

  void Read(const ReadRequest& request, IoPriority priority, IoTag tag, Done done) {
    DFIN_CHECK(request.file != nullptr && request.destination != nullptr && request.bytes > 0,
               "a read names its bytes");
    bool wake = false;
    {
      const std::lock_guard lock(mutex_);
      QueuedRead* read = pool_.Take();
      read->request = request;
      read->priority = priority;
      read->tag = tag;
      read->done = std::move(done);
      read->handed_out = 0;
      read->status = Status();
      Queue(priority).Append(read);
      wake = std::exchange(waiting_, false);
    }
    if (wake) engine_->Wake();
  }

  void Cancel(IoTag tag) {
    if (tag == 0) return;
    bool wake = false;
    {
      const std::lock_guard lock(mutex_);
      CancelQueued([tag](const QueuedRead& read) { return read.tag == tag; });
      wake = !ended_.empty() && std::exchange(waiting_, false);
    }
    if (wake) engine_->Wake();
  }

  void Raise(IoTag tag, IoPriority priority) {
    const std::lock_guard lock(mutex_);
    for (ReadList& queue : queues_) {
      if (&queue == &Queue(priority)) continue;
      queue.MoveIf(Queue(priority), [&](QueuedRead& read) {
        if (read.tag != tag) return false;
        read.priority = priority;
        return true;
      });
    }
  }

  const std::vector<DriveInfo>& drives() const { return options_.drives; }

  IoTag NewTag() { return next_tag_.fetch_add(1, std::memory_order_relaxed); }

  IoCounters counters() const {
    const std::lock_guard lock(mutex_);
    IoCounters now = counters_;
    if (chunks_in_flight_ > 0) now.busy_seconds += SecondsBetween(busy_since_ns_, clock_.NowNs());
    return now;
  }

  std::string engine_name() const { return engine_->name(); }

 private:
  struct Chunk {
    QueuedRead* read = nullptr;
    uint64_t widened_bytes = 0;
  };

  ReadList& Queue(IoPriority priority) { return queues_[static_cast<size_t>(priority)]; }

  void Loop() {
    for (;;) {
      bool exit = false;
      {
        const std::lock_guard lock(mutex_);
        waiting_ = false;
        if (stop_) CancelQueued([](const QueuedRead&) { return true; });
        FillWindow();
        calling_ = std::exchange(ended_, ReadList());
        exit = stop_ && calling_.empty() && chunks_in_flight_ == 0 && QueuesEmpty();
        // From here on a Read must wake the engine; set under the lock that Read takes, so no read is overlooked.
        waiting_ = calling_.empty();
      }
      if (exit) return;
      for (const auto& [id, request] : to_submit_) engine_->Submit(id, request);
      to_submit_.clear();
      if (calling_.empty()) {
        Reap(engine_->Wait(completions_, -1));
      } else {
        CallBack();
      }
    }
  }

  // Hands out chunks, most urgent first, while the window and the engine have room.
  void FillWindow() {
    while (!free_chunks_.empty()) {
      ReadList* queue = nullptr;
      for (ReadList& candidate : queues_) {
        if (queue == nullptr && !candidate.empty()) queue = &candidate;
      }
      if (queue == nullptr) return;
      QueuedRead* read = queue->front();
      const ReadRequest chunk = NextChunk(*read);
      const uint64_t widened = WidenedBytes(chunk.offset, chunk.bytes, chunk.file->alignment());
      if (chunks_in_flight_ > 0 && bytes_in_flight_ + widened > options_.window_bytes) return;
      HandOut(read, chunk, widened);
      if (read->handed_out == read->request.bytes) queue->PopFront();
    }
  }

  // The rest of `read`, up to the next chunk border. Borders are whole chunks away from the widened start, so that only
  // the ends of a read are widened and the pieces meet without overlap.
  ReadRequest NextChunk(const QueuedRead& read) const {
    const uint64_t alignment = read.request.file->alignment();
    const uint64_t chunk_bytes = AlignUp(options_.chunk_bytes, alignment);
    const uint64_t start = AlignDown(read.request.offset, alignment);
    const uint64_t offset = read.request.offset + read.handed_out;
    const uint64_t chunk_start = start + AlignDown(offset - start, chunk_bytes);
    const uint64_t end = std::min(read.request.offset + read.request.bytes, chunk_start + chunk_bytes);
    return {read.request.file, offset, end - offset, read.request.destination + (chunk_start - start)};
  }

  void HandOut(QueuedRead* read, const ReadRequest& chunk, uint64_t widened) {
    const size_t id = free_chunks_.back();
    free_chunks_.pop_back();
    chunks_[id] = {read, widened};
    to_submit_.emplace_back(id, chunk);
    read->handed_out += chunk.bytes;
    ++read->chunks_in_flight;
    bytes_in_flight_ += widened;
    if (chunks_in_flight_++ == 0) busy_since_ns_ = clock_.NowNs();
  }

  // Takes `count` completions of the engine.
  void Reap(size_t count) {
    if (count == 0) return;
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < count; ++i) {
      IoCompletion& completion = completions_[i];
      const Chunk chunk = chunks_[completion.id];
      QueuedRead* read = chunk.read;
      free_chunks_.push_back(completion.id);
      bytes_in_flight_ -= chunk.widened_bytes;
      if (--chunks_in_flight_ == 0) counters_.busy_seconds += SecondsBetween(busy_since_ns_, clock_.NowNs());
      counters_.device_bytes += completion.bytes_read;
      --read->chunks_in_flight;
      if (!completion.status && read->status) TakeError(read, std::move(completion.status));
      if (read->chunks_in_flight == 0 && read->handed_out == read->request.bytes) End(read);
    }
  }

  // Keeps the first error and hands out no more of the read.
  void TakeError(QueuedRead* read, Status status) {
    read->status = std::move(status);
    if (read->handed_out == read->request.bytes) return;
    ReadList removed;
    Queue(read->priority).MoveIf(removed, [read](const QueuedRead& other) { return &other == read; });
    read->handed_out = read->request.bytes;
  }

  void End(QueuedRead* read) {
    if (read->status) {
      ++counters_.reads;
      counters_.payload_bytes += read->request.bytes;
    } else {
      ++counters_.errors;
    }
    ended_.Append(read);
  }

  template <typename Predicate>
  void CancelQueued(Predicate wanted) {
    for (ReadList& queue : queues_) {
      queue.MoveIf(ended_, [&](QueuedRead& read) {
        if (read.started() || !wanted(read)) return false;
        read.status =
            Fail(ErrorCode::kCancelled, "reading ", read.request.file->path(), ": cancelled before it started");
        ++counters_.cancelled;
        return true;
      });
    }
  }

  bool QueuesEmpty() const {
    return std::all_of(queues_.begin(), queues_.end(), [](const ReadList& queue) { return queue.empty(); });
  }

  void CallBack() {
    ReadList called;
    while (!calling_.empty()) {
      QueuedRead* read = calling_.PopFront();
      read->done(std::move(read->status));
      read->done = nullptr;
      called.Append(read);
    }
    const std::lock_guard lock(mutex_);
    while (!called.empty()) pool_.Put(called.PopFront());
  }

  const std::unique_ptr<IoEngine> engine_;
  IoSchedulerOptions options_;
  const SteadyClock clock_;
  std::atomic<IoTag> next_tag_{1};

  mutable std::mutex mutex_;
  // Under mutex_.
  ReadPool pool_;
  std::array<ReadList, kIoPriorities> queues_;  // not wholly handed out, by priority
  ReadList ended_;                              // to be called back
  std::vector<Chunk> chunks_;                   // [depth]: what the engine's ids stand for
  std::vector<size_t> free_chunks_;
  uint64_t bytes_in_flight_ = 0;
  int chunks_in_flight_ = 0;
  int64_t busy_since_ns_ = 0;
  IoCounters counters_;
  bool waiting_ = false;  // the thread is, or is about to be, in engine_->Wait() and nobody has woken it
  bool stop_ = false;

  // The thread's own.
  std::vector<std::pair<uint64_t, ReadRequest>> to_submit_;
  std::vector<IoCompletion> completions_;
  ReadList calling_;
  std::thread thread_;
};

IoScheduler::IoScheduler(std::unique_ptr<IoEngine> engine, IoSchedulerOptions options, const Clock* clock)
    : impl_(std::make_unique<Impl>(std::move(engine), std::move(options), clock)) {}

IoScheduler::~IoScheduler() { impl_->Stop(); }

IoTag IoScheduler::NewTag() { return impl_->NewTag(); }

void IoScheduler::Read(std::span<const ReadPart> parts, IoPriority priority, IoTag tag, Done done) {
  struct Open {
    std::atomic<size_t> parts;
    Status status;
    Done done;
  };
  auto open = std::make_shared<Open>();
  open->parts = parts.size();
  open->done = std::move(done);
  for (const ReadPart& part : parts)
    impl_->Read(part.request, priority, tag, [open](Status status) {
      if (!status && open->status) open->status = std::move(status);
      if (--open->parts == 0) open->done(std::move(open->status));
    });
}

void IoScheduler::Read(const ReadRequest& request, int32_t, IoPriority priority, IoTag tag, Done done) {
  impl_->Read(request, priority, tag, std::move(done));
}

void IoScheduler::Cancel(IoTag tag) { impl_->Cancel(tag); }

void IoScheduler::Raise(IoTag tag, IoPriority priority) { impl_->Raise(tag, priority); }

std::vector<DriveCounters> IoScheduler::drive_counters() const {
  return std::vector<DriveCounters>(impl_->drives().size());
}

const std::vector<DriveInfo>& IoScheduler::drives() const { return impl_->drives(); }

IoCounters IoScheduler::counters() const { return impl_->counters(); }

std::string IoScheduler::engine_name() const { return impl_->engine_name(); }

}  // namespace deltafin
