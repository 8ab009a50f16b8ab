#include "setup/fetcher.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace deltafin {

Fetcher::Fetcher(ModelSource& source, SetupJournal& journal, FetcherOptions options, std::vector<FetchFile> files)
    : source_(source), journal_(journal), options_(std::move(options)), files_(files.size()) {
  for (size_t i = 0; i < files.size(); ++i) files_[i].what = std::move(files[i]);
}

Fetcher::~Fetcher() {
  stop_.Cancel();
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Fetcher::Start() {
  for (int i = 0; i < options_.connections; ++i) threads_.emplace_back([this] { Loop(); });
}

// What is not present, in pieces; the last one comes first since jobs are taken from the end.
void Fetcher::Cut(Work& work) const {
  work.missing.clear();
  uint64_t at = 0;
  const auto add_until = [&](uint64_t end) {
    while (at < end) {
      const uint64_t length = std::min(options_.range_bytes, end - at);
      work.missing.push_back({at, length});
      at += length;
    }
  };
  for (const HttpRange& range : work.what.present) {
    add_until(range.offset);
    at = std::max(at, range.offset + range.length);
  }
  add_until(work.what.file.size);
  std::reverse(work.missing.begin(), work.missing.end());
}

Status Fetcher::OpenPart(Work& work) {
  DFIN_TRY(work.part, PartFile::Open(work.what.path, work.what.file.size, options_.hook));
  if (work.part->fresh() && !work.what.present.empty()) {
    DFIN_TRY_VOID(journal_.Append({SetupEntry::Kind::kAgain, work.what.number, 0, 0, 0}));
    work.what.present.clear();
  }
  Cut(work);
  work.opened = true;
  work.done = work.missing.empty();
  return {};
}

std::optional<Fetcher::Job> Fetcher::NextJob(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    if (stop_.token().cancelled() || !error_ || released_ == files_.size()) return std::nullopt;
    const size_t end = std::min(files_.size(), released_ + options_.window);
    for (size_t i = released_; i < end; ++i) {
      Work& work = files_[i];
      if (!work.opened) {
        if (Status opened = OpenPart(work); !opened) {
          error_ = std::move(opened);
          changed_.notify_all();
          return std::nullopt;
        }
        if (work.done) changed_.notify_all();
      }
      if (work.missing.empty()) continue;
      ++work.in_flight;
      if (work.whole_file) {
        work.missing.clear();
        return Job{i, {0, work.what.file.size}, true};
      }
      const HttpRange range = work.missing.back();
      work.missing.pop_back();
      return Job{i, range, false};
    }
    changed_.wait_for(lock, std::chrono::milliseconds(200));
  }
}

void Fetcher::Loop() {
  for (;;) {
    std::unique_lock lock(mutex_);
    const std::optional<Job> job = NextJob(lock);
    if (!job) return;
    lock.unlock();
    Finish(*job, Run(*job));
  }
}

Status Fetcher::Run(const Job& job) {
  Work& work = files_[job.file];
  uint64_t counted = 0;
  const RangeSink sink = [&](uint64_t offset, Bytes bytes) -> Status {
    if (stop_.token().cancelled()) return Fail(ErrorCode::kCancelled, work.what.path, ": stopped");
    if (job.whole_file && offset == 0) received_ -= std::exchange(counted, 0);  // from the beginning again
    DFIN_TRY_VOID(work.part->Write(offset, bytes));
    counted += bytes.size();
    received_ += bytes.size();
    return {};
  };
  const HubFile& file = work.what.file;
  Status status = job.whole_file ? source_.FetchWhole(file, sink, stop_.token())
                                 : source_.FetchRange(file, job.range.offset, job.range.length, sink, stop_.token());
  if (status) status = work.part->Sync();
  if (status)
    status = journal_.Append({SetupEntry::Kind::kRange, work.what.number, job.range.offset, job.range.length, 0});
  if (!status) received_ -= counted;
  return status;
}

void Fetcher::Finish(const Job& job, Status status) {
  const std::lock_guard lock(mutex_);
  Work& work = files_[job.file];
  --work.in_flight;
  if (!status && status.error().code() == ErrorCode::kUnsupported && !job.whole_file) {
    // No ranges here: one of the connections gets the file in one piece; the others come too late or not at all.
    if (!std::exchange(work.whole_file, true)) work.missing = {{0, work.what.file.size}};
  } else if (!status && error_) {
    error_ = std::move(status);
    stop_.Cancel();
  }
  work.done = error_ && work.missing.empty() && work.in_flight == 0;
  changed_.notify_all();
}

Result<bool> Fetcher::Wait(size_t i, int milliseconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(milliseconds), [&] { return files_[i].done || !error_; });
  if (!error_) return Failure(Error(error_.error()));
  return files_[i].done;
}

Status Fetcher::Again(size_t i) {
  Work& work = files_[i];
  DFIN_TRY_VOID(journal_.Append({SetupEntry::Kind::kAgain, work.what.number, 0, 0, 0}));
  const std::lock_guard lock(mutex_);
  work.what.present.clear();
  work.done = work.what.file.size == 0;
  Cut(work);
  changed_.notify_all();
  return {};
}

void Fetcher::Release(size_t i) {
  const std::lock_guard lock(mutex_);
  files_[i].part.reset();
  released_ = i + 1;
  changed_.notify_all();
}

}  // namespace deltafin
