#include "pack/listed_verifier.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/thread_pool.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard_file.h"
#include "pack/model_file_check.h"

namespace deltafin {
namespace {

constexpr int kMostThreads = 4;  // one hashes 1 to 2 GB a second: enough for any drive
constexpr auto kTick = std::chrono::milliseconds(200);

class ListedVerifier {
 public:
  ListedVerifier(const VerifyOptions& options, const ModelFiles& list, CancelToken cancel)
      : options_(options), list_(list), cancel_(cancel) {}

  Status Run(const BadRecordFn& on_bad, const VerifyProgressFn& progress, VerifyReport& report);

 private:
  std::string Path(const ModelFile& file) const { return Cat(options_.model, "/", file.name); }
  void Choose(VerifyReport& report);
  void Work();
  BadRecord Bad(const ModelFile& file, const Status& status) const;

  const VerifyOptions& options_;
  const ModelFiles& list_;
  const CancelToken cancel_;
  std::vector<const ModelFile*> files_;
  uint64_t total_ = 0;
  std::atomic<uint64_t> done_{0};
  std::atomic<size_t> next_{0};
  std::mutex mutex_;
  std::condition_variable ended_;
  // Under the mutex.
  size_t running_ = 0;
  std::vector<BadRecord> found_;
};

void ListedVerifier::Choose(VerifyReport& report) {
  for (const ModelFile& file : list_.files) {
    const Result<FileStamp> stamp = StampFile(Path(file));
    if (!stamp && stamp.error().code() == ErrorCode::kNotFound) {
      ++report.files_absent;
      continue;
    }
    const Result<ShardHeader> shard = stamp && stamp->bytes != file.bytes && file.name.ends_with(".safetensors")
                                          ? ReadShardHeader(Path(file))
                                          : Result<ShardHeader>(Fail(ErrorCode::kUnsupported, file.name));
    if (shard && !shard->header.metadata(kExpertsMovedTo).empty()) {
      ++report.files_moved;
      continue;
    }
    files_.push_back(&file);
    total_ += file.bytes;
  }
  // The longest first: then they end together.
  std::stable_sort(files_.begin(), files_.end(), [](const auto* a, const auto* b) { return a->bytes > b->bytes; });
}

BadRecord ListedVerifier::Bad(const ModelFile& file, const Status& status) const {
  const std::string& message = status.error().message();
  BadRecord bad;
  bad.file = Path(file);
  bad.what = message.starts_with(bad.file + ": ") ? message.substr(bad.file.size() + 2) : message;
  bad.what += list_.repository.empty() ? ": repair: remove it, then fetch or copy it again"
                                       : Cat(": repair: remove it, then `deltafin setup --repo ", list_.repository,
                                             " --to ", options_.model, "` fetches it again");
  return bad;
}

void ListedVerifier::Work() {
  for (size_t i = next_++; i < files_.size() && !cancel_.cancelled(); i = next_++) {
    uint64_t told = 0;
    const auto tick = [&] {
      const uint64_t piece = std::min(kCheckPieceBytes, files_[i]->bytes - told);
      told += piece;
      done_ += piece;
    };
    const Status right = CheckModelFile(Path(*files_[i]), *files_[i], tick, cancel_);
    done_ += files_[i]->bytes - told;
    if (right || right.error().code() == ErrorCode::kCancelled) continue;
    const std::lock_guard lock(mutex_);
    found_.push_back(Bad(*files_[i], right));
  }
  const std::lock_guard lock(mutex_);
  --running_;
  ended_.notify_all();
}

Status ListedVerifier::Run(const BadRecordFn& on_bad, const VerifyProgressFn& progress, VerifyReport& report) {
  Choose(report);
  running_ = std::min(files_.size(), static_cast<size_t>(std::clamp(UsableCores(), 1, kMostThreads)));
  std::vector<std::thread> threads;
  for (size_t i = running_; i > 0; --i) threads.emplace_back([this] { Work(); });
  std::unique_lock lock(mutex_);
  for (bool ended = false; !ended;) {
    ended = ended_.wait_for(lock, kTick, [&] { return running_ == 0; });
    std::vector<BadRecord> found;
    found.swap(found_);
    lock.unlock();
    for (const BadRecord& bad : found) on_bad(bad);
    report.bad += found.size();
    report.files_bad += found.size();
    if (progress) progress(done_, total_);
    lock.lock();
  }
  lock.unlock();
  for (std::thread& thread : threads) thread.join();
  if (cancel_.cancelled()) return Fail(ErrorCode::kCancelled, options_.model, ": stopped");
  report.files_compared = files_.size();
  report.bytes += total_;
  return {};
}

}  // namespace

Status VerifyListed(const VerifyOptions& options, const ModelFiles& list, const BadRecordFn& on_bad,
                    const VerifyProgressFn& progress, CancelToken cancel, VerifyReport& report) {
  return ListedVerifier(options, list, cancel).Run(on_bad, progress, report);
}

}  // namespace deltafin
